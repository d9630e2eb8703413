"""Flags as the target's version has them, in what is advised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.advise.flags import from_later_version, lacks
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Fact
from infradoc_rules.versions import Running, version_of


@pytest.mark.parametrize(
    ("spelling", "version", "there"),
    [
        ("--swap-space", "0.8.5", True),
        ("--swap-space", "0.11.0", False),
        ("--num-scheduler-steps", "0.6.3", True),
        ("--num-scheduler-steps", "0.10.1", False),
        ("--kv-cache-memory-bytes", "0.9.0", False),
        ("--max-model-len", "0.2.0", True),  # not listed: in all versions
    ],
)
def test_a_spelling_exists_in_some_versions(spelling: str, version: str, there: bool) -> None:
    assert Running("vllm", version).has(spelling) is there


def test_of_an_unknown_version_it_is_not_known() -> None:
    assert Running("vllm", None).has("--swap-space") is None and version_of("main") is None


@pytest.mark.parametrize(
    ("text", "system", "version"),
    [
        ("v0.10.2rc1", "vllm", (0, 10, 2)),
        ("0.8.5.post1", "vllm", (0, 8, 5)),
        ("6123", "llamacpp", (0, 0, 6123)),
        ("b6123", "llamacpp", (0, 0, 6123)),
        ("6123 (79c1160b)", "llamacpp", (0, 0, 6123)),
        ("6123", "vllm", None),
        ("", "llamacpp", None),
    ],
)
def test_versions_are_read(text: str, system: str, version: object) -> None:
    assert version_of(text, system) == version


@given(st.text(), st.sampled_from(["vllm", "llamacpp", None]))
def test_any_text_is_a_version_or_none(text: str, system: str | None) -> None:
    version = version_of(text, system)
    assert version is None or (len(version) == 3 and min(version) >= 0)


@given(
    st.tuples(*[st.integers(0, 99)] * 3),
    st.sampled_from(["", "v", "vllm "]),
    st.sampled_from(["", "rc1", "+cpu", ".post1"]),
)
def test_a_written_version_is_read_back(version, before: str, behind: str) -> None:
    assert version_of(before + ".".join(map(str, version)) + behind, "vllm") == version


FORMS = [
    ("tgi", "1.4.0", "max_input_tokens", 2048, "--max-input-length 2048"),
    ("tgi", "3.3.0", "max_input_tokens", 2048, "--max-input-tokens 2048"),
    ("tgi", "2.3.1", "prefix_caching", True, "USE_PREFIX_CACHING=true"),
    ("tgi", "2.4.0", "prefix_caching", True, "PREFIX_CACHING=true"),
    ("tgi", "2.0.0", "prefix_caching", True, None),
    ("tgi", "3.3.7", "custom_all_reduce", True, None),
    ("vllm", "0.12.0", "cuda_graph_max_bs", 64, "--max-cudagraph-capture-size 64"),
    ("vllm", "0.10.0", "cuda_graph_max_bs", 64, "--cuda-graph-sizes 64"),
    ("vllm", "0.8.5", "cuda_graph_max_bs", 64, None),
    ("vllm", "0.7.3", "chunked_prefill", False, "--enable-chunked-prefill=False"),
    ("vllm", "0.9.0", "chunked_prefill", False, "--no-enable-chunked-prefill"),
    ("vllm", "0.5.0", "chunked_prefill", False, "drop --enable-chunked-prefill"),
    ("vllm", "0.6.6", "prefix_caching", False, "--no-enable-prefix-caching"),
    ("vllm", "0.9.0", "mm_preprocessor_cache", False, "--disable-mm-preprocessor-cache"),
    ("vllm", "0.11.0", "mm_preprocessor_cache", False, "--mm-processor-cache-gb 0"),
    ("vllm", "0.8.0", "attention_backend", "XFORMERS", "VLLM_ATTENTION_BACKEND=XFORMERS"),
    ("vllm", "0.13.0", "attention_backend", "TRITON_ATTN", "--attention-backend TRITON_ATTN"),
    ("vllm", "0.8.0", "speculative_tokens", 3, "--num-speculative-tokens 3"),
    ("vllm", "0.9.0", "speculative_tokens", 3, "--speculative-config '{\"num_speculative_tokens\": 3}'"),
    ("vllm", "0.9.0", "weights_cpu_offload", 17179869184.0, "--cpu-offload-gb 16"),
    ("vllm", "0.3.3", "kv_cache_dtype", "fp8", "--kv-cache-dtype fp8_e5m2"),
    ("vllm", "0.4.1", "kv_cache_dtype", "fp8", "--kv-cache-dtype fp8"),
    ("vllm", "0.9.0", "fast_tokenizer", True, "--tokenizer-mode auto"),
    ("sglang", "0.5.9", "cuda_graph_max_bs", 64, "--cuda-graph-max-bs 64"),
    ("sglang", "0.5.20", "cuda_graph_max_bs", 64, "--cuda-graph-max-bs-decode 64"),
    ("sglang", "0.5.9", "kv_host_cache", "8 GiB", "--hicache-size 8"),
    ("llamacpp", "6301", "flash_attention", True, "--flash-attn"),
    ("llamacpp", "b6327", "flash_attention", True, "--flash-attn on"),
    ("llamacpp", "b6327", "flash_attention", False, "--flash-attn off"),
    ("llamacpp", "b6170", "context_shift", False, "--no-context-shift"),
    ("llamacpp", "b6170", "context_shift", True, "drop --no-context-shift"),
    ("llamacpp", "b7551", "context_shift", True, "--context-shift"),
    ("llamacpp", "b8672", "speculative_tokens", 8, "--draft-max 8"),
    ("llamacpp", "b9873", "speculative_tokens", 8, "--spec-draft-n-max 8"),
    ("llamacpp", "b7000", "memory_margin", 1 << 30, None),
    ("llamacpp", "b7551", "memory_margin", 1 << 30, "--fit-target 1024"),
    ("trtllm", "1.0.0", "gpu_memory_utilization", 0.8, "--kv_cache_free_gpu_memory_fraction 0.8"),
    ("lmdeploy", "0.10.0", "stats_output", True, "--enable-metrics"),
    ("lmdeploy", "0.11.0", "stats_output", True, "drop --disable-metrics"),
    ("ollama", "0.5.0", "max_model_len", 8192, "num_ctx=8192"),
]


@pytest.mark.parametrize(("system", "version", "knob", "value", "flag"), FORMS)
def test_a_knob_is_spelled_as_the_version_has_it(system, version, knob, value, flag) -> None:
    assert knob_table().flag(system, knob, value, Running(system, version)) == flag


@pytest.mark.parametrize(
    ("system", "knob", "spelling"),
    [
        ("trtllm", "gpu_memory_utilization", "--kv_cache_free_gpu_memory_fraction"),  # in all versions
        ("vllm", "cuda_graph_max_bs", "--max-cudagraph-capture-size"),  # not one that has ended
        ("vllm", "preemption_mode", "--preemption-mode"),  # all have ended: better that one than none
    ],
)
def test_of_an_unknown_version_the_safest_spelling_is_taken(system, knob, spelling) -> None:
    assert knob_table().spelling(system, knob, Running(system)) == spelling


@pytest.mark.parametrize(
    ("torch", "spelling"),
    [
        (None, "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.4.0", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.10.0+cu128", "PYTORCH_CUDA_ALLOC_CONF"),  # the new name is taken there and does nothing for this setting
        ("2.12.0", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_the_allocator_is_set_by_the_name_that_works(torch, spelling) -> None:
    assert knob_table().spelling("vllm", "pytorch_alloc_conf", Running("vllm", None, torch)) == spelling


def _advice(system: str, version: str | None, **facts) -> Advice:
    values = {name.replace("__", "."): value for name, value in facts.items()}
    known = {name: Fact(name, value, "flag", None) for name, value in values.items()}
    if version is not None:
        known["target.version"] = Fact("target.version", version, "derived", None)
    return Advice(MemoryFrame(0.0, facts=known, system=system), {})


def _action(advice: Advice, name: str, **values):
    return advice.action(name, why="because", cost="the loser", **values)


def test_a_launch_with_a_flag_that_was_removed_gets_the_new_one() -> None:
    advice = _advice("vllm", "0.13.0", cuda_graph_max_bs=512)
    worded = _action(advice, "lower_cuda_graph_max_bs", to_value=64, flag="--cuda-graph-sizes 64")
    assert worded.flag == "--max-cudagraph-capture-size 64"


def test_what_the_launch_sets_is_there_though_the_table_says_later() -> None:
    advice = _advice("vllm", "0.9.0", kv_host_cache=1 << 30)
    assert _action(advice, "lower_kv_host_cache", flag="--kv-offloading-size 1").flag == "--kv-offloading-size 1"


def test_a_worded_flag_that_the_version_lacks_is_not_said() -> None:
    action = _action(_advice("vllm", "0.11.0"), "lower_swap_space", to_value="1 GiB", flag="--swap-space 1")
    assert action.flag is None


def test_on_cpus_the_pool_is_sized_by_its_variable_and_never_by_a_share() -> None:
    facts = {"env__VLLM_CPU_KVCACHE_SPACE": 4, "kv__needed_bytes": 7.0 * 2**30}
    for version in ("0.6.3", "0.9.2", "0.17.0+cpu", "0.33.0"):
        advice = _advice("vllm", version, **facts)
        raised = _action(advice, "raise_gpu_memory_utilization", from_value=0.9, to_value=0.95)
        assert (raised.flag, raised.from_value, raised.to_value) == ("VLLM_CPU_KVCACHE_SPACE=8", "4 GiB", "8 GiB")
        lowered = _action(advice, "lower_gpu_memory_utilization", from_value=0.9, to_value=0.8)
        assert lowered.flag == "VLLM_CPU_KVCACHE_SPACE=2"


def test_on_gpus_the_variable_is_not_said() -> None:
    action = _action(_advice("vllm", "0.9.2"), "raise_gpu_memory_utilization", to_value=0.95)
    assert action.flag == "--gpu-memory-utilization 0.95"


@pytest.mark.parametrize(("torch", "advised"), [("2.10.0", True), ("2.4.0", True), ("2.12.0", False), (None, False)])
def test_a_setting_under_a_name_that_torch_does_not_read_is_not_one(torch, advised) -> None:
    facts = {"env__PYTORCH_ALLOC_CONF": "expandable_segments:True"} | ({"torch_version": torch} if torch else {})
    found = actions_for(["set_expandable_segments"], _advice("vllm", "0.13.0", **facts))
    assert [action.flag for action in found] == ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"] * advised


def test_a_knob_that_ended_is_not_advised() -> None:
    action = _action(_advice("vllm", "0.11.0"), "recompute_instead_of_swap", to_value="recompute")
    assert lacks(_advice("vllm", "0.11.0"), action)
    assert from_later_version(_advice("vllm", "0.11.0"), action) is None


def test_a_knob_of_the_first_engine_is_not_advised_to_the_second() -> None:
    for version in ("0.8.5", None):
        advice = _advice("vllm", version, target__engine_api="V1")
        assert lacks(advice, _action(advice, "raise_max_partial_prefills", to_value=4)), version
    advice = _advice("vllm", "0.8.5", target__engine_api="V0")
    assert _action(advice, "raise_max_partial_prefills", to_value=4).flag == "--max-num-partial-prefills 4"


def test_a_knob_that_comes_later_is_named_with_its_version_where_nothing_else_is_left() -> None:
    (action,) = actions_for(["raise_front_ends"], _advice("vllm", "0.8.5", api_server_count=1))
    assert action.flag == "vllm>=0.9.1, --api-server-count 2" and "from vLLM 0.9.1 on" in action.why
    found = actions_for(["raise_front_ends", "restart_to_free"], _advice("vllm", "0.8.5", api_server_count=1))
    assert [action.name for action in found] == ["restart_engine"]


def test_every_switch_is_worded_as_one() -> None:
    """An action that switches a knob never names the flag that does the opposite."""
    for spec in ACTIONS.values():
        for system in ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy"):
            names = knob_table()[spec.knob].spellings.get(system, ())
            if spec.change not in ("enable", "disable") or not names or not names[0].startswith("--no-"):
                continue
            flag = _action(_advice(system, None), spec.name).flag
            assert flag is None or flag.startswith("drop ") is (spec.change == "enable"), (spec.name, system, flag)
