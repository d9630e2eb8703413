"""Starts that break off: what a log's lines say about device memory, and the direction of the advice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.advise import Advice, actions_for
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import scan
from infradoc_rules.patterns.sizes import number_of
from infradoc_rules.summaries import summarise
from infradoc_rules.summaries.holders import held_by_others
from infradoc_rules.summaries.start import attempts

GIB = 1 << 30
HEAD = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 540.00 MiB."
NEW = (
    f"{HEAD} GPU 3 has a total capacity of 79.18 GiB of which 402.06 MiB is free. Process 77 has 10.00 GiB memory in "
    "use. Including non-PyTorch memory, this process has 68.78 GiB memory in use. Of the allocated memory 58.02 GiB is "
    "allocated by PyTorch, with 612.00 MiB allocated in private pools (e.g., CUDA Graphs), and 9.05 GiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting"
)
OLD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 462.00 MiB (GPU 0; 79.15 GiB total capacity; "
    "77.61 GiB already allocated; 118.25 MiB free; 78.02 GiB reserved in total by PyTorch) If reserved memory is >>"
)


def facts_of(*lines: str, system: str | None = "vllm") -> dict[str, object]:
    """The facts of a log of these lines."""
    read = scan(lines, system=system)
    return {name: fact.value for name, fact in summarise(read.events, read.facts, read.system).items()}


def refusal(line: str) -> Event:
    """The `cuda_oom` event of a line."""
    return next(event for event in scan([line], system="vllm").events if event.name == "cuda_oom")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("84.00 MiB", 84 << 20),
        ("448.00 KiB", 448 << 10),
        ("0 bytes", 0),
        ("1,024", 1024),
        ("0x19000", 102400),
        ("-1.94 GiB", -1.94 * GIB),
    ],
)
def test_sizes_are_read_with_their_unit(text, number):
    assert number_of(text) == number


@given(st.text(max_size=40))
def test_what_is_no_number_is_refused_with_a_value_error(text):
    try:
        assert isinstance(number_of(text), float | int)
    except ValueError as error:
        assert "is no number" in str(error) or "could not convert" in str(error)


def test_a_refused_allocation_gives_all_of_its_figures():
    fields = refusal(NEW).fields
    assert fields["want_bytes"] == 540 << 20
    assert fields["gpu"] == 3
    assert fields["total_bytes"] == round(79.18 * GIB)
    assert fields["process_bytes"] == round(68.78 * GIB)
    assert fields["private_pool_bytes"] == 612 << 20
    assert fields["reserved_unallocated_bytes"] == round(9.05 * GIB)
    assert held_by_others(refusal(NEW)) == 10 * GIB


def test_the_old_form_gives_what_is_reserved():
    facts = facts_of(OLD)
    assert facts["oom.allocated_bytes"] == round(77.61 * GIB)
    assert facts["oom.reserved_unallocated_bytes"] == round(78.02 * GIB) - round(77.61 * GIB)


@given(st.integers(min_value=len(HEAD), max_value=len(NEW)), st.booleans())
def test_a_line_that_was_cut_anywhere_is_still_one_refusal(length, old):
    line = OLD[: length + 12].replace("462.00", "540.00") if old else NEW[:length]
    read = scan([line], system="vllm")
    assert [event.name for event in read.events].count("cuda_oom") == 1
    assert read.events[0].fields["want_bytes"] == 540 << 20


@pytest.mark.parametrize(
    ("holders", "allocated", "others"),
    [
        ("Process 8121 has 15.75 GiB memory in use.", "13.96 GiB", 0.0),  # a container prints the process itself so
        ("Process 1 has 1.81 GiB memory in use. Process 2 has 16.12 GiB memory in use.", "1.22 GiB", 16.12),
        ("Process 1 has 30.12 GiB memory in use.", "39.00 GiB", 30.12),  # the process itself is not listed
    ],
)
def test_whose_memory_it_is(holders, allocated, others):
    line = (
        f"{HEAD} GPU 0 has a total capacity of 47.00 GiB of which 10.00 MiB is free. {holders} "
        f"Of the allocated memory {allocated} is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but "
        "unallocated."
    )
    assert held_by_others(refusal(line)) == pytest.approx(others * GIB, abs=1 << 20)


def test_a_process_that_claims_more_than_the_device_is_not_believed():
    """Seen in containers: "this process has 17179869184.00 GiB memory in use"."""
    line = (
        f"{HEAD} GPU 0 has a total capacity of 47.00 GiB of which 46.00 GiB is free. Including non-PyTorch memory, "
        "this process has 17179869184.00 GiB memory in use."
    )
    assert held_by_others(refusal(line)) in (None, 0.0)


def test_echoes_are_one_refusal_and_the_first_phase_counts():
    facts = facts_of(
        "INFO 01-01 00:00:00 [gpu_model_runner.py:1] Starting to load model x...",
        f"(Worker_TP0 pid=1) ERROR 01-01 00:00:01 [x.py:1] {NEW}",
        f"(Worker_TP1 pid=2) ERROR 01-01 00:00:01 [x.py:1] {NEW}",
        f"(EngineCore pid=3) ERROR 01-01 00:00:02 [core.py:1] {HEAD}",
    )
    assert (facts["oom.count"], facts["oom.count_distinct"]) == (3, 1)
    assert facts["oom.phase"] == "load_weights"
    assert facts["oom.fragmented"] is True


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        ("load_model", "load_weights"),
        ("profile_run", "profile"),
        ("_allocate_kv_cache_tensors", "kv_allocate"),
        ("_dummy_sampler_run", "sampler_warmup"),
        ("capture_model", "graph_capture"),
        ("execute_model", "serving"),
    ],
)
def test_the_function_in_the_traceback_gives_the_phase(frame, phase):
    facts = facts_of("Traceback (most recent call last):", f'  File "/x/y.py", line 1, in {frame}', f"    x()\n{NEW}")
    assert facts["oom.phase"] == phase


def test_a_refusal_that_was_survived_is_none():
    facts = facts_of(NEW, "INFO:     Application startup complete.")
    assert facts["start.failed"] is False
    assert facts["oom.at_start"] is False
    assert "oom.phase" not in facts


def test_only_the_last_attempt_counts():
    broken = "ERROR 01-01 00:00:00 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing"
    banner = "INFO 01-01 00:01:00 [api_server.py:1] vLLM API server version 0.11.0"
    assert facts_of(broken)["kv.verdict"] == "none"
    healed = facts_of(broken, banner, "INFO:     Application startup complete.")
    assert (healed["kv.verdict"], healed["start.failed"], healed["start.attempts"]) == ("unknown", False, 2)


def test_a_crash_loop_that_was_cut_off_is_judged_by_the_last_whole_attempt():
    broken = "ERROR 01-01 00:00:00 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing"
    banner = "INFO 01-01 00:01:00 [api_server.py:1] vLLM API server version 0.11.0"
    loading = "INFO 01-01 00:01:10 [gpu_model_runner.py:1] Model loading took 65.97 GiB and 9.1 seconds"
    cut = facts_of(banner, broken, banner, broken, banner, loading)
    assert (cut["kv.verdict"], cut["start.failed"], cut["start.attempts"]) == ("none", True, 2)


def test_a_launch_command_beside_the_log_is_no_attempt():
    events = [Event("kv_no_memory", 1, {}), Event("launched", 2, {"system": "vllm"})]
    assert [event.name for event in attempts(events)[-1]] == ["kv_no_memory"]


def test_the_account_line_of_a_healthy_start_is_no_shortage():
    line = (
        "INFO 10-06 17:00:41 [gpu_worker.py:1] Free memory on device (78.84/79.25 GiB) on startup. Desired GPU memory "
        "utilization is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for weight, 1.44 GiB for peak activation, 0.07 "
        "GiB for non-torch memory, and 0.23 GiB for CUDAGraph memory."
    )
    read = scan([line], system="vllm")
    assert [event.name for event in read.events] == ["memory_account"]
    assert read.events[0].fields["activation_bytes"] == round(1.44 * GIB)
    assert summarise(read.events, read.facts, "vllm")["gpu.shared"].value is False


def test_a_snapshot_beside_a_failed_start_shows_the_neighbour():
    failed = Event("kv_no_memory", 1, {}, phase="kv_allocate", source="server.log:9")
    neighbour = Event("gpu_process", 2, {"gpu": 0, "pid": 2211, "bytes": 9 * GIB}, source="nvidia-smi.txt:18")
    known = {"gpu.memory_bytes": Fact("gpu.memory_bytes", 45 * GIB, "file")}
    assert summarise([failed, neighbour], known, "vllm")["gpu.other_share"].value == pytest.approx(0.2)
    serving = Event("stats_line", 3, {"running": 2})
    assert "gpu.other_share" not in summarise([serving, neighbour], known, "vllm")
    again = [Event("gpu_process", 2 + n, {"gpu": 0, "pid": 2211, "bytes": 9 * GIB}, 60.0 * n) for n in range(4)]
    assert summarise([failed, *again], known, "vllm")["gpu.other_share"].value == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("facts", "share"),
    [
        ({}, 0.1),  # one device, the first
        ({"tensor_parallel_size": 2}, 0.5),
        ({"env.CUDA_VISIBLE_DEVICES": "1"}, 0.5),
        ({"container_devices": "device=7"}, 0.5),  # not in the snapshot: any of it may be meant
    ],
)
def test_only_the_devices_of_the_server_count(facts, share):
    rows = [
        Event("gpu_process", at, {"gpu": at, "pid": 10 + at, "bytes": size * GIB}) for at, size in ((0, 4), (1, 20))
    ]
    known = {name: Fact(name, value, "flag") for name, value in facts.items()}
    known["gpu.memory_bytes"] = Fact("gpu.memory_bytes", 40 * GIB, "file")
    read = summarise([Event("kv_no_memory", 9, {}), *rows], known, "vllm")
    assert read["gpu.other_share"].value == pytest.approx(share)


def test_the_server_itself_in_a_snapshot_is_no_neighbour():
    failed = Event(
        "kv_no_memory", 1, {}, text="(EngineCore pid=901) ValueError: No available memory for the cache blocks."
    )
    itself = Event("gpu_process", 2, {"gpu": 0, "pid": 901, "bytes": 30 * GIB})
    assert summarise([failed, itself], {}, "vllm")["gpu.shared"].value is False


def test_a_kernel_that_was_skipped_is_no_fault():
    line = "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes may help."
    inductor = (
        "OutOfMemoryError: out of resource: triton_mm Required: 135168 Hardware limit: 101376 Reducing block sizes"
    )
    assert facts_of(line, "INFO:     Application startup complete.")["kernel.refused"] is False
    assert facts_of(line)["kernel.refused"] is True
    assert facts_of(inductor)["kernel.refused"] is True
    assert facts_of(inductor)["oom.count"] == 0


def test_shuffled_frames_still_name_the_innermost_phase():
    stamp = "ERROR 07-12 13:02:07 [core.py:586] "
    frames = [f'{stamp}  File "/x/gpu_worker.py", line 1, in {name}' for name in ("_dummy_sampler_run", "profile_run")]
    error = stamp + HEAD
    assert facts_of(error, *frames)["oom.phase"] == "sampler_warmup"
    assert facts_of(*frames, error)["oom.phase"] == "sampler_warmup"


def advice(system: str, *events: Event, **facts: object) -> Advice:
    """What a sizing function sees."""
    rows = [Fact(name.replace("__", "."), value, "log") for name, value in facts.items()]
    return Advice(MemoryFrame.build([], events=events, facts=rows, system=system, now=0.0), {})


def test_the_share_goes_up_for_kv_and_down_for_what_runs_beside_it():
    short = advice("vllm", kv__verdict="none", gpu__shared=False, gpu_memory_utilization=0.9)
    (up,) = actions_for(["raise_share_for_kv"], short)
    (down,) = actions_for(["lower_share_for_room"], advice("vllm", gpu_memory_utilization=0.95))
    assert (up.change, up.to_value, up.flag) == ("increase", 0.95, "--gpu-memory-utilization 0.95")
    assert (down.change, down.to_value) == ("decrease", 0.9)


@pytest.mark.parametrize(
    "facts",
    [
        {"gpu_memory_utilization": 0.95, "gpu__shared": False},  # at its limit
        {"gpu_memory_utilization": 0.5, "gpu__shared": True, "target__version": "0.11.0"},  # a neighbour is in the way
        {
            "gpu_memory_utilization": 0.9,
            "gpu__shared": False,
            "gpu__memory_bytes": 20 * GIB,
            "kv__available_bytes": -9 * GIB,
        },
    ],
)
def test_a_share_that_cannot_help_is_not_raised(facts):
    assert actions_for(["raise_share_for_kv"], advice("vllm", kv__verdict="none", **facts)) == []


@pytest.mark.parametrize(
    ("version", "api", "advised"),
    [("0.7.3", "V1", True), ("0.7.3", "V0", False), ("0.2.6", None, True), ("0.9.1", "V1", False)],
)
def test_versions_that_count_the_neighbour_as_their_own(version, api, advised):
    facts = {"kv__verdict": "none", "gpu__shared": True, "gpu__other_share": 0.3, "target__version": version}
    facts |= {"gpu_memory_utilization": 0.3} | ({"target__engine_api": api} if api else {})
    found = [
        action.name for action in actions_for(["share_over_foreign", "upgrade_for_sharing"], advice("vllm", **facts))
    ]
    assert found == (["raise_gpu_memory_utilization", "upgrade_engine"] if advised else [])


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.6.3", "--limit-mm-per-prompt image=1"), ("0.11.0", "--limit-mm-per-prompt '{\"image\": 1}'")],
)
def test_the_flag_is_spelled_as_that_version_takes_it(version, flag):
    (action,) = actions_for(["lower_mm_limit"], advice("vllm", target__version=version))
    assert action.flag == flag


def test_own_cases_name_known_findings():
    folder = Path(__file__).parents[1] / "data" / "own_cases"
    assert all((case / "label.yaml").exists() for case in folder.iterdir() if case.is_dir())
