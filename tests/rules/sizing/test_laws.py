"""What holds for every model, device and launch."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.sizing.account import Account, account
from infradoc_rules.sizing.gpus import Gpu, known_gpus
from infradoc_rules.sizing.known import known_model, known_names
from infradoc_rules.sizing.parts import kv_of_token, weight_bytes
from infradoc_rules.sizing.printed import Printed, adjusted, under
from infradoc_rules.sizing.setting import Setting, shareable
from infradoc_rules.units import GIB

MODELS = st.sampled_from(known_names()).map(known_model)
VERSIONS = st.sampled_from([(0, 6, 4), (0, 8, 5), (0, 11), (0, 17), (0, 21), None])
LENGTHS = st.integers(1, 1 << 20)


@st.composite
def launches(draw):
    """A model with a launch that an engine would start with."""
    model = draw(MODELS)
    gpus = draw(st.sampled_from([count for count in (1, 2, 4, 8, 16) if shareable(model, count)]))
    setting = Setting(
        gpu=draw(st.sampled_from(known_gpus())),
        tensor_parallel=gpus,
        max_model_len=draw(LENGTHS),
        kv_dtype=draw(st.sampled_from([None, "fp8"])),
        fraction=draw(st.floats(0.05, 1)),
        max_num_seqs=draw(st.sampled_from([None, 1, 16, 1024])),
        max_num_batched_tokens=draw(st.sampled_from([None, 512, 32768])),
        eager=draw(st.booleans()),
        version=draw(VERSIONS),
    )
    return model, setting


@given(launches(), st.integers(0, 200 << 30))
def test_more_memory_never_holds_fewer_tokens(launch, more):
    # The same step on both: an engine may take larger defaults on a larger device, and lose tokens by them.
    model, setting = launch
    seqs, tokens = setting.batch(model)
    setting = replace(setting, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    larger = replace(setting, gpu=replace(setting.gpu, memory_bytes=setting.gpu.memory_bytes + more))
    assert account(model, larger).tokens >= account(model, setting).tokens
    assert account(model, larger).kv >= account(model, setting).kv


@given(launches())
def test_more_gpus_never_hold_more_weights_each(launch):
    model, setting = launch
    sizes = [
        weight_bytes(model, replace(setting, tensor_parallel=count))
        for count in range(1, 17)
        if shareable(model, count)
    ]
    assert sizes == sorted(sizes, reverse=True)


@given(launches())
def test_bytes_of_a_token_are_exactly_the_formula(launch):
    model, setting = launch
    item = 1 if setting.kv_dtype == "fp8" else 2
    if model.latent is not None:
        expected = model.layers * (model.latent.kv_rank + model.latent.rope) * item
    else:
        heads = max(1, -(-model.kv_heads // setting.tensor_parallel))
        expected = model.layers * 2 * heads * model.head_dim * item
    assert kv_of_token(model, setting) == account(model, setting).kv_per_token == expected


@given(launches(), LENGTHS)
def test_a_longer_request_never_needs_less(launch, length):
    model, setting = launch
    seqs, tokens = setting.batch(model)
    setting = replace(setting, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    short, long = sorted((setting.max_model_len, length))
    needs = [account(model, replace(setting, max_model_len=tokens)).needed for tokens in (short, long)]
    assert needs[0] <= needs[1]


@given(launches())
def test_parts_add_up_and_the_span_holds_the_estimate(launch):
    model, setting = launch
    made = account(model, setting)
    inside = made.graphs if made.graphs_inside else 0
    assert made.kv + made.weights + made.activation + made.engine + inside == made.budget
    assert made.kv_low <= made.kv <= made.kv_high
    assert made.problem in ("", "weights", "no_kv", "kv_too_small", "beyond_fraction")
    assert (made.problem == "") <= (made.requests >= 1)


@given(launches(), st.integers(1, 100 << 30), st.integers(-50 << 30, 100 << 30))
def test_what_a_log_printed_wins(launch, weights, kv):
    model, setting = launch
    made = adjusted(model, setting, Printed(weights=weights, kv=kv))
    assert made.account.weights == weights and made.account.kv == kv and made.exact
    assert adjusted(model, setting, Printed()).account == account(model, setting)


@given(launches(), st.integers(0, 8 << 30))
def test_a_change_of_nothing_changes_nothing(launch, missing):
    model, setting = launch
    printed = Printed(kv=account(model, setting).kv - missing)
    assert under(model, setting, printed, setting) == adjusted(model, setting, printed).account


def test_an_account_is_plain_data():
    made = account(known_model("Llama-3-8B"), Setting(Gpu("GPU", 24 * GIB, None, 0.0)))
    assert isinstance(made, Account) and made.total == 24 * GIB
