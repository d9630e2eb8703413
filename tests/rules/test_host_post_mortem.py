"""Memory of the host and of /dev/shm, told from events: verdicts of the summary, and what is advised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.advise import host as advise
from infradoc_rules.advise.base import Advice
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact
from infradoc_rules.signals import signal_table
from infradoc_rules.summaries import engine_flags, host
from infradoc_rules.summaries.bystanders import unexplained

GIB = 1 << 30


def events(*rows):
    """Events in order from (name, fields) or (name, fields, phase)."""
    return [
        Event(row[0], order, row[1], None, row[2] if len(row) > 2 else "serving", f"server.log:{order}", "")
        for order, row in enumerate(rows, start=1)
    ]


def said(rows, **facts):
    """The facts of the host summary; "__" in a name stands for a dot."""
    known = {name.replace("__", "."): value for name, value in facts.items()}
    held = {name: Fact(name, value, "file") for name, value in known.items()}
    return {fact.name: fact.value for fact in host.summary(events(*rows), held, None)}


PINNED = ("traceback", {"message": "CUDA error: out of memory", "functions": "__init__ allocate_cpu_cache"})
DIED = ("worker_died", {"name": "VllmWorker-1"})
KILLED = ("worker_died", {"name": "VllmWorker-1", "exit_code": -9})
STATS = ("stats_line", {"running": 1})


@pytest.mark.parametrize(
    ("rows", "facts", "verdict", "by"),
    [
        ([("host_oom_kill", {"scope": "node"})], {}, "certain", "node"),
        ([("host_oom_kill", {"scope": "container"}), ("host_oom_kill", {"scope": "cgroup"})], {}, "certain", "cgroup"),
        ([("host_alloc_failed", {"what": "swap_space"})], {}, "certain", "allocation"),
        ([STATS], {"cgroup__oom_kills": 2}, "certain", "cgroup"),
        ([STATS, KILLED], {}, "likely", "signal"),
        ([STATS, ("worker_died", {"name": "process", "exit_code": 137})], {}, "likely", "signal"),
        ([("cuda_oom", {}), STATS, ("worker_died", {"name": "x", "signal": 9})], {}, "likely", "signal"),
        ([("cuda_oom", {}), KILLED], {}, "none", None),
        ([("probe_failed", {}), KILLED], {}, "none", None),
        ([("watchdog_timeout", {"seconds": 300.0}), KILLED], {}, "none", None),
        ([("kv_budget", {"fits": False}), KILLED], {}, "none", None),
        ([("worker_died", {"name": "x", "signal": 9}, "shutdown")], {}, "none", None),
        ([("host_oom_kill", {"scope": "host", "name": "chrome"})], {}, "none", None),
        ([("host_oom_kill", {"scope": "host", "name": "pt_main_thread"})], {}, "certain", "host"),
        ([DIED], {}, "none", None),
        ([STATS, ("worker_died", {"name": "SYSTEM_ERROR"})], {}, "likely", "signal"),
        ([("worker_died", {"name": "map worker"})], {}, "likely", "signal"),
        ([("worker_died", {"name": "x", "signal": 11}), ("worker_died", {"name": "SYSTEM_ERROR"})], {}, "none", None),
        ([("cuda_oom", {}), PINNED], {}, "certain", "pinned"),
        ([STATS], {"cgroup__oom_kills": 0}, "none", None),
    ],
)
def test_who_ended_a_process(rows, facts, verdict, by):
    found = said(rows, **facts)
    assert (found["host.oom"], found.get("host.oom_by")) == (verdict, by)


@pytest.mark.parametrize(
    ("rows", "facts", "verdict"),
    [
        ([("shm_short", {"what": "nccl"})], {}, "certain"),
        ([("shm_short", {"what": "SIGBUS"})], {}, "certain"),
        ([("shm_short", {"what": "SIGBUS"})], {"shm__size_bytes": 64 * GIB, "shm__used_bytes": GIB}, "none"),
        ([("shm_short", {"what": "SIGBUS"})], {"shm_size": "16g"}, "none"),
        ([("shm_short", {"what": "SIGBUS"})], {"shm_size": "64Mi"}, "certain"),
        ([("shm_short", {"what": "no space"})], {"shm__size_bytes": 64 * GIB}, "certain"),
        ([STATS, DIED], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 64 << 20}, "likely"),
        ([STATS, DIED], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 0, "tensor_parallel_size": 2}, "likely"),
        ([STATS, DIED], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 0}, "none"),
        ([STATS, KILLED], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 64 << 20}, "none"),
        ([("cuda_oom", {}), DIED], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 64 << 20}, "none"),
        ([STATS], {"shm__size_bytes": 64 << 20, "shm__used_bytes": 64 << 20}, "none"),
        (
            [("traceback", {"message": "[Errno 28] No space left on device", "functions": "a SharedMemory"})],
            {},
            "certain",
        ),
        ([("traceback", {"message": "[Errno 28] No space left", "file": "/usr/lib/synchronize.py"})], {}, "certain"),
        ([("traceback", {"message": "[Errno 28] No space left on device", "functions": "save"})], {}, "none"),
    ],
)
def test_when_shared_memory_was_too_small(rows, facts, verdict):
    assert said(rows, **facts)["shm.short"] == verdict


def test_the_container_limit_counts_before_the_host():
    rows = [("host_memory", {"used_bytes": 60 * GIB, "limit_bytes": 64 * GIB}), ("host_oom_kill", {"scope": "cgroup"})]
    found = said(rows, host__memory_bytes=512 * GIB)
    assert found["host.size_bytes"] == 64 * GIB
    assert found["host.used_share"] == pytest.approx(60 / 64)


def test_nothing_is_said_when_nothing_was_read():
    assert list(host.summary([], {}, None)) == []


def test_an_echo_of_a_death_does_not_explain_it():
    rows = events(STATS, ("traceback", {"exception": "EngineDeadError", "message": ""}), KILLED)
    assert unexplained(rows[-1], rows)


def test_a_printed_opposite_becomes_the_knob():
    facts = {"sglang.disable_radix_cache": Fact("sglang.disable_radix_cache", True, "log")}
    assert [(fact.name, fact.value) for fact in engine_flags.summary([], facts, "sglang")] == [
        ("prefix_caching", False)
    ]


def advice(system="vllm", rows=(), **facts):
    """What the sizing functions see."""
    known = {name.replace("__", "."): value for name, value in facts.items()}
    held = {name: Fact(name, value, "derived") for name, value in known.items()}
    return Advice(MemoryFrame(0.0, events=events(*rows), facts=held, system=system), {})


def test_no_swap_space_is_lowered_where_there_is_none():
    assert advise.lower_swap_space(advice(target__version="0.11.0", host__size_bytes=32 * GIB)) is None
    assert advise.lower_swap_space(advice("sglang", host__size_bytes=32 * GIB)) is None
    assert advise.lower_swap_space(advice(rows=[("stats_line", {"swapped": 0})], swap_space=0)) is None


def test_a_refused_swap_space_is_sized_for_the_host():
    action = advise.lower_swap_space(advice(host__what="swap_space", host__size_bytes=8 * GIB, tensor_parallel_size=1))
    assert action is not None
    assert (action.from_value, action.to_value, action.flag) == ("4 GiB", "2 GiB", "--swap-space 2")


def test_a_prompt_cache_is_counted_in_the_unit_of_its_flag():
    action = advise.lower_kv_host_cache(advice("llamacpp", kv_host_cache=8192))
    assert action is not None
    assert action.to_value == "4096 MiB"
    assert advise.lower_kv_host_cache(advice("llamacpp")) is None


def test_a_refused_host_cache_leaves_what_the_engine_keeps_free():
    refused = {"host__what": "kv_host_cache", "host__free_bytes": 45 * GIB, "host__want_bytes": 40 * GIB}
    assert advise.lower_kv_host_cache(advice("sglang", **refused)).to_value == "31 GiB"
    assert advise.lower_kv_host_cache(advice("vllm", **refused)).to_value == "36 GiB"


def test_an_object_store_is_not_multiplied_by_ranks():
    action = advise.raise_shm_size(
        advice(shm__available_bytes=9 * GIB, shm__want_bytes=10 * GIB, tensor_parallel_size=8)
    )
    assert action.to_value == "32 GiB"


@given(size=st.integers(64 << 20, 64 * GIB), want=st.integers(0, 8 * GIB), ranks=st.integers(1, 16))
def test_shared_memory_is_never_advised_below_what_was_there(size, want, ranks):
    action = advise.raise_shm_size(advice(shm__total_bytes=size, shm__want_bytes=want, tensor_parallel_size=ranks))
    assert int(str(action.to_value).split()[0]) * GIB > max(size, want)


def test_the_host_namespace_is_not_advised_twice():
    assert advise.share_host_ipc(advice(ipc_host=True)) is None
    assert advise.share_host_ipc(advice()) is not None


_NAMES = ["worker_died", "host_oom_kill", "host_alloc_failed", "shm_short", "stats_line", "cuda_oom", "traceback"]


@given(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=12))
def test_the_verdicts_are_always_there(names):
    found = said([(name, {}) for name in names])
    assert found["host.oom"] in ("certain", "likely", "none")
    assert found["shm.short"] in ("certain", "likely", "none")
    assert set(names) <= set(signal_table().events)
