"""What an engine takes by itself, by version and device."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yaml import safe_load

from infradoc_rules import defaults
from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.advise.device import present, present_share
from infradoc_rules.defaults import Host, default_of
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Fact
from infradoc_rules.versions import Running, version_of

TABLE = safe_load((Path(defaults.__file__).parent / "defaults.yaml").read_text())["defaults"]
A100, H100, B200, RTX = Host(79.3, "A100 80GB"), Host(79.1, "H100"), Host(178.4, "B200"), Host(23.5, "RTX 4090")


@pytest.mark.parametrize(
    ("system", "version", "knob", "host", "value"),
    [
        ("vllm", "0.20.2", "gpu_memory_utilization", None, 0.9),
        ("vllm", "0.21.0", "gpu_memory_utilization", None, 0.92),
        ("vllm", None, "gpu_memory_utilization", None, None),  # it would decide
        ("vllm", "0.6.3", "max_num_seqs", None, 256),
        ("vllm", "0.8.3", "max_num_seqs", RTX, 1024),  # many devices ran out of memory by it, so 0.8.4 took it back
        ("vllm", "0.8.4", "max_num_seqs", RTX, 256),
        ("vllm", "0.8.5", "max_num_seqs", A100, 1024),
        ("vllm", "0.9.0", "max_num_seqs", A100, 256),
        ("vllm", "0.9.0", "max_num_seqs", H100, 1024),
        ("vllm", "0.9.0", "max_num_seqs", None, None),
        ("vllm", "0.10.0", "max_num_batched_tokens", RTX, 2048),
        ("vllm", "0.32.0", "max_num_batched_tokens", B200, 16384),
        ("vllm", "0.6.3", "prefix_caching", None, False),
        ("vllm", "0.9.0", "prefix_caching", None, True),
        ("sglang", "0.5.13", "max_num_batched_tokens", RTX, 2048),
        ("sglang", "0.5.22", "max_num_batched_tokens", RTX, 4096),
        ("sglang", "0.5.10", "cuda_graph_max_bs", Host(23.5, None, 4), 80),
        ("sglang", "0.5.17", "max_num_batched_tokens", RTX, None),  # between two that were looked at
        ("tgi", "1.4.5", "max_model_len", None, 2048),
        ("tgi", "3.0.0", "max_num_batched_tokens", None, None),  # worked out from the device
        ("llamacpp", "b6000", "max_num_seqs", None, 1),
        ("llamacpp", "b7079", "max_num_seqs", None, 4),
        ("ollama", "0.6.6", "max_model_len", None, 2048),
        ("ollama", "0.6.7", "max_model_len", None, 4096),
        ("ollama", "0.15.5", "max_model_len", RTX, 32768),
        ("lmdeploy", "0.2.0", "gpu_memory_utilization", None, 0.5),
        ("lmdeploy", "0.9.2", "gpu_memory_utilization", None, 0.8),
        (None, None, "max_num_seqs", None, None),
    ],
)
def test_a_default_by_version_and_device(system, version, knob, host, value) -> None:
    assert default_of(Running(system, version), knob, host) == value


def test_what_the_engine_says_of_itself_decides_in_the_versions_that_have_both() -> None:
    assert default_of(Running("vllm", "0.8.5", api="V0"), "prefix_caching") is False
    assert default_of(Running("vllm", "0.11.0", api="V0"), "prefix_caching") is True  # there is no other any more


@pytest.mark.parametrize("system", sorted(TABLE))
def test_every_row_names_a_knob_that_this_engine_has_and_versions_that_can_be_read(system) -> None:
    for knob, rows in TABLE[system].items():
        assert knob in knob_table() and knob_table()[knob].spellings.get(system), (system, knob)
        for row in rows:
            assert set(row) <= {"since", "until", "api", "from", "to", "device", "not", "split", "value"}
            assert all(version_of(row[key], system) for key in ("since", "until") if key in row), row


@given(
    st.sampled_from(sorted((system, knob) for system, rows in TABLE.items() for knob in rows)),
    st.tuples(st.integers(0, 1), st.integers(0, 35), st.integers(0, 9)),
    st.floats(8, 300),
    st.sampled_from(["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"]),
    st.sampled_from([1, 2, 4, 8]),
)
def test_rows_of_a_knob_exclude_each_other(named, version, memory, device, split) -> None:
    system, knob = named
    running = Running(system, f"b{version[1] * 300}" if system == "llamacpp" else ".".join(map(str, version)))
    host = Host(memory, device, split)
    holding = [row for row in TABLE[system][knob] if defaults._fits(row, running, host)]
    assert len({str(row["value"]) for row in holding}) <= 1


def _advice(system: str, version: str, **facts) -> Advice:
    values = {"target.version": version, **{name.replace("__", "."): value for name, value in facts.items()}}
    return Advice(MemoryFrame(0.0, facts={n: Fact(n, v, "log", None) for n, v in values.items()}, system=system), {})


def test_advice_starts_from_the_default_and_says_so() -> None:
    advice = _advice("vllm", "0.8.5", oom__want_bytes=4e9, oom__free_bytes=1e9, gpu__memory_bytes=24e9)
    (action,) = actions_for(["lower_step_for_peak"], advice)
    assert (action.from_value, action.to_value) == (2048, 512)
    assert "2048 is the default of version 0.8.5" in action.why
    known = present(_advice("vllm", "0.8.5", max_num_batched_tokens=4096), "max_num_batched_tokens")
    assert (known.value, known.note) == (4096, "")


def test_the_share_is_the_one_of_the_version() -> None:
    assert [present_share(_advice("vllm", version)) for version in ("0.9.2", "0.22.0")] == [0.9, 0.92]
    assert present_share(_advice("sglang", "0.5.3")) is None
