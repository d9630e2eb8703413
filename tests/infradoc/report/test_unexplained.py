"""A failure without a known cause: no phase that nothing shows, and what would decide."""

from __future__ import annotations

import pytest

BANNER = "INFO 06-01 10:00:03 [api_server.py:1287] vLLM API server version 0.11.0"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of"
    " which 1.10 GiB is free."
)
HELD = " Process 12 has {} GiB memory in use. Process 13 has 30.00 GiB memory in use."
OWN = " Of the allocated memory {} GiB is allocated by PyTorch, and {} is reserved by PyTorch but unallocated."


@pytest.mark.parametrize(
    "lines",
    [
        (OOM,),
        ("INFO 06-01 10:00:03 [x.py:1] something", OOM),
        (BANNER, "INFO 06-01 10:07:03 [x.py:1] something", OOM),
        (
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)"
            " for the root cause.",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000.00 MiB on device 0: cudaMalloc failed:"
            " out of memory",
        ),
        (
            "RuntimeError: [TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n,"
            " mMemPool->getPool(), mCudaStream->get()): out of memory (/src/tensorrt_llm/runtime/tllmBuffers.h:236)",
        ),
    ],
)
def test_no_start_is_claimed_where_none_is_shown(pasted, lines):
    report = pasted(*lines)
    said = " ".join(report["not_visible"])
    assert report["status"] == "unknown"
    assert "phase launch" not in said
    assert "the phase is unknown" in said
    assert "What would decide: " in said
    assert "阶段未知" in " ".join(pasted(*lines, lang="zh")["not_visible"])


def test_a_start_that_shows_itself_keeps_its_phase(pasted):
    said = " ".join(pasted(BANNER, "Segmentation fault (core dumped)")["not_visible"])
    assert "phase launch" in said


def test_the_numbers_are_told(pasted):
    said = pasted(OOM)["not_visible"]
    assert "Device memory ran out: 2.0 GiB were asked for; 1.1 GiB of 79.1 GiB were free." in said


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (OOM + HELD.format("48.00") + OWN.format("29.00", "100.00 MiB"), "oom-gpu-shared-with-other-process"),
        (OOM + OWN.format("60.00", "17.00 GiB"), "fragmentation-allocator"),
    ],
)
def test_figures_that_decide_the_cause_name_it(pasted, text, finding):
    assert pasted(text)["findings"][0]["id"] == finding


def test_an_allocation_that_was_tried_again_with_less_is_no_failure(pasted):
    lines = [
        "load_tensors: offloaded 63/63 layers to GPU",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51722.64 MiB on device 1: cudaMalloc failed:"
        " out of memory",
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        "srv  update_slots: all slots are idle",
    ]
    assert pasted(*lines)["status"] == "ok"
