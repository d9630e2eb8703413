"""The closed tables: signals, events, knobs, finding ids, and the catalog's own loading."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc_rules.catalog import load_catalog
from infradoc_rules.knobs import knob_table
from infradoc_rules.rule_file import RuleError
from infradoc_rules.signals import absent_reads_zero, family, signal_table
from infradoc_rules.texts import number, places, render
from infradoc_rules.vocabulary import finding_ids

DATA = Path(__file__).parents[1] / "data"


def test_series_resolve_to_their_signal():
    table = signal_table()
    assert table.resolve("llm_request_seconds_bucket").name == "llm_request_seconds"
    assert table.resolve("llm_request_seconds") is None  # a histogram has no series of its bare name
    assert table.resolve("llm_requests_running").kind == "gauge"
    assert table.resolve("llm_requests_running_sum") is None
    assert table.resolve("nothing") is None
    assert table.events["preempted"].required == {"mode", "count"}
    assert table.phases[0] == "launch" and "serving" in table.phases


def test_every_signal_is_well_formed():
    for spec in signal_table().signals.values():
        assert spec.kind in ("gauge", "counter", "histogram", "info"), spec.name
        assert spec.absent in ("no_data", "zero_if_sibling_present"), spec.name
        assert (spec.kind == "counter") <= spec.name.endswith("_total"), spec.name


@pytest.mark.parametrize(
    ("name", "present", "provides", "zero"),
    [
        ("llm_preemptions_total", {"llm_requests_running"}, None, True),
        ("llm_preemptions_total", {"llm_requests_running"}, {"llm_preemptions_total"}, True),
        ("llm_preemptions_total", {"llm_requests_running"}, {"llm_requests_running"}, False),
        ("llm_preemptions_total", {"host_load1"}, None, False),
        ("llm_requests_running", {"llm_requests_waiting"}, None, False),
        ("client_requests_total", {"client_request_seconds_sum"}, {"llm_requests_running"}, True),
        ("unheard_of", {"llm_requests_running"}, None, False),
    ],
)
def test_when_absent_is_zero(name, present, provides, zero):
    assert absent_reads_zero(name, present, None if provides is None else frozenset(provides)) is zero


def test_family():
    assert (family("llm_requests_running"), family("client_x")) == ("llm", "client")


def test_the_scorer_sees_the_packaged_knobs():
    packaged = Path(__import__("infradoc_rules").__file__).parent / "knobs.yaml"
    assert (DATA / "knobs.yaml").read_text() == packaged.read_text()


@pytest.mark.parametrize(
    ("system", "knob", "value", "flag"),
    [
        ("vllm", "max_num_seqs", 8, "--max-num-seqs 8"),
        ("infradoc", "kv_pool_tokens", 1536, "--kv-pool-tokens 1536"),
        ("sglang", "max_num_seqs", 8, "--max-running-requests 8"),
        ("tgi", "chunked_prefill", 1, "PREFILL_CHUNKING=1"),
        ("sglang", "prefix_caching", True, "drop --disable-radix-cache"),
        ("sglang", "prefix_caching", False, "--disable-radix-cache"),
        ("vllm", "prefix_caching", True, "--enable-prefix-caching"),
        ("vllm", "enforce_eager", False, "drop --enforce-eager"),
        ("tgi", "prefix_caching", True, "PREFIX_CACHING=true"),
        ("infradoc", "replicas", 2, None),
        ("vllm", "gpu_memory_utilization", 0.95, "--gpu-memory-utilization 0.95"),
    ],
)
def test_flags(system, knob, value, flag):
    assert knob_table().flag(system, knob, value) == flag


@pytest.mark.parametrize(
    ("system", "spelling", "wanted"),
    [
        ("vllm", "--max-num-seqs", ("max_num_seqs", False)),
        ("vllm", "--num-gpu-blocks-override 24", ("kv_pool_tokens", False)),
        ("vllm", "--no-enable-prefix-caching", ("prefix_caching", True)),
        ("tgi", "--max-total-tokens", ("max_model_len", False)),
        ("sglang", "--max-total-tokens", ("kv_pool_tokens", False)),
        ("llamacpp", "-np", ("max_num_seqs", False)),
        (None, "OMP_NUM_THREADS", ("omp_num_threads", False)),
        ("vllm", "max_num_seqs", ("max_num_seqs", False)),
        ("vllm", "--port", None),
    ],
)
def test_spellings_resolve_per_engine(system, spelling, wanted):
    assert knob_table().resolve(system, spelling) == wanted


def test_only_the_bundled_engine_is_live():
    knobs = knob_table()
    assert knobs.live("infradoc", "max_num_seqs") and not knobs.live("vllm", "max_num_seqs")
    assert not knobs.live("infradoc", "max_model_len")


def test_the_first_catalog_is_there_with_ids_of_the_vocabulary():
    ids = {rule.id for rule in load_catalog().rules}
    assert ids >= {
        "kv-thrashing-preemption",
        "cpu-tokenization-bottleneck",
        "silent-truncation",
        "context-length-exceeded",
        "batch-limit-too-small",
        "queue-saturation",
        "engine-stalled",
    }
    assert ids <= set(finding_ids())


def test_thresholds_can_be_overridden_and_nothing_else():
    changed = load_catalog(thresholds={"queue-saturation": {"waiting": 9}})
    assert changed.get("queue-saturation").thresholds["waiting"] == 9
    assert load_catalog().get("queue-saturation").thresholds["waiting"] != 9
    with pytest.raises(RuleError, match="no rule 'queue-saturations'; did you mean 'queue-saturation'"):
        load_catalog(thresholds={"queue-saturations": {}})
    with pytest.raises(RuleError, match="no threshold 'wating'; it has per_running"):
        load_catalog(thresholds={"queue-saturation": {"wating": 1}})


def test_a_rule_that_is_not_there_names_the_nearest():
    with pytest.raises(LookupError, match="did you mean 'engine-stalled'"):
        load_catalog().get("engine-stall")


def test_verify_of_the_two_demo_rules():
    tokens = load_catalog().get("cpu-tokenization-bottleneck").verify
    assert [(m.signal, m.quantile, m.at_most, m.request_class) for m in tokens.metrics] == [
        ("client_time_to_first_token_seconds", 0.9, 0.75, "chat"),
        ("client_inter_token_latency_seconds", 0.99, 0.7, "chat"),
    ]
    assert load_catalog().get("kv-thrashing-preemption").verify.throughput_at_least == 1.1


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a} and {b:.0%}", "3 and 50%"),
        ("{missing} {none}", "? ?"),
        ("{big} {small}", "12,346 0.123"),
        ("{inf:.0f}", "∞"),
        ("{word:.0%}", "left"),
        ("{a.__class__} {a[0]} {}", "{a.__class__} {a[0]} {}"),
    ],
)
def test_texts(template, text):
    values = {"a": 3.0, "b": 0.5, "none": None, "big": 12345.6, "small": 0.12345, "inf": float("inf"), "word": "left"}
    assert render(template, values) == text


def test_places_and_numbers():
    assert places("{a} {b:.0%} {c.d}") == {"a", "b"}
    assert (number(5.0), number(float("nan")), number("x")) == ("5", "nan", "x")
