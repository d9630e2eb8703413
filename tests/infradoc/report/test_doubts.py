"""Silence of the rules is health only where something that ran was understood, and nothing broke off."""

from __future__ import annotations

import pytest

BANNER = "INFO 06-01 10:00:03 [api_server.py:1287] vLLM API server version 0.11.0"
READY = "INFO:     Application startup complete."
STATS = (
    "INFO 06-01 10:0{}:00 [loggers.py:116] Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation"
    " throughput: 90.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%,"
    " Prefix cache hit rate: 0.0%"
)
ANSWER = 'INFO:     10.0.0.1:{} - "POST /v1/chat/completions HTTP/1.1" {}'
XID = "[123.4] NVRM: Xid (PCI:0000:07:00): {}, pid=1234, name=python3, Ch 00000008"
RING = "INFO 06-01 10:0{}:05 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 second."


@pytest.fixture
def judged(pasted):
    """(status, ids at warning or above, the sentences on what is in doubt) of a text."""

    def read(*lines, lang="en"):
        report = pasted(*lines, lang=lang)
        told = [line for line in report["not_visible"] if line.startswith(("Cannot tell: ", "无法判断："))]
        found = [finding["id"] for finding in report["findings"] if finding["severity"] != "info"]
        return report["status"], found, told

    return read


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        "OSError: You are trying to access a gated repo.",
        "Exception: no such thing",
        "my_engine.errors.StartError",
        "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "error: could not open the file",
        "serve: error: the following arguments are required: model",
        "fatal: something is broken",
        "Aborted (core dumped)",
        "Segmentation fault (core dumped)",
        "terminate called after throwing an instance of 'std::runtime_error'",
        "thread 'main' panicked at src/main.rs:1:2:",
        "panic: runtime error: index out of range",
        "command terminated with exit code 1",
        "Process exited with status 2",
    ],
)
@pytest.mark.parametrize("before", [(BANNER,), (BANNER, READY, STATS.format(1))], ids=["start", "served"])
def test_what_ends_in_an_error_is_not_healthy(judged, before, line):
    status, found, told = judged(*before, line)
    assert status == "unknown", found
    assert told if "Segmentation" not in line else True  # that one is told as a failure
    assert all("server.log:" in one for one in told)


@pytest.mark.parametrize("after", [STATS.format(3), ANSWER.format(7, "200 OK")])
def test_a_server_that_went_on_was_not_ended_by_it(judged, after):
    assert judged(BANNER, READY, STATS.format(1), "ValueError: a plugin was not found", after) == ("ok", [], [])


@pytest.mark.parametrize(
    "line",
    [
        ANSWER.format(1, "400 Bad Request"),
        "WARNING 06-01 10:02:00 [config.py:1] an error in the template was corrected",
        "INFO 06-01 10:02:00 [check.py:1] finished with 0 errors",
        "error rate: 0.0",
        "error: 0",
        "finished with exit code 0",
        "asyncio.exceptions.CancelledError",
        "KeyboardInterrupt",
        "RuntimeError: Event loop is closed",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    ],
)
def test_harmless_last_lines(judged, line):
    assert judged(BANNER, READY, STATS.format(1), line) == ("ok", [], [])


def test_what_a_stopped_program_throws_is_an_echo(judged):
    lines = ["{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}"] * 4
    stop = ["slurmstepd: error: *** STEP 811.0 ON c21 CANCELLED AT 2025-02-02 DUE TO TIME LIMIT ***", "OSError: closed"]
    assert judged(*lines, *stop)[0] == "ok"


@pytest.mark.parametrize(
    "codes",
    [
        ["500 Internal Server Error"] * 3,
        ["200 OK"] * 20 + ["502 Bad Gateway"],
        ["200 OK"] * 900 + ["500 Internal Server Error"] * 3,
    ],
)
def test_server_errors_to_clients(judged, codes):
    status, found, told = judged(BANNER, READY, *(ANSWER.format(port, code) for port, code in enumerate(codes)))
    assert (status, found) == ("unknown", [])
    assert f"of {len(codes)} requests" in told[0]


def test_single_server_errors_of_a_busy_server_and_probes_while_it_starts(judged):
    probe = 'INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable'
    answers = [ANSWER.format(port, "200 OK") for port in range(300)]
    answers[100] = ANSWER.format(100, "500 Internal Server Error")
    assert judged(BANNER, probe, READY, *answers) == ("ok", [], [])


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([BANNER], "a start"),
        ([BANNER, "INFO 06-01 10:01:03 [gpu.py:1] Model loading took 14.2 GiB and 5.1 seconds"], "a start"),
        (["\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tSYS\t0-31", "GPU1\tSYS\t X \t32-63"], "nothing at work"),
        ([XID.format(13)], "Xid 13"),
        ([XID.format(31)], "Xid 31"),
        ([XID.format(43)], "Xid 43"),
        ([BANNER, RING.format(2), RING.format(3)], "waited 2 times"),
        (["gpu1:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0."], "topo -m"),
        (["CONTAINER ID   NAME   CPU %   MEM USAGE / LIMIT   MEM %   NET I/O   BLOCK I/O   PIDS",
          "abc123def456   vllm   812.33%   30.1GiB / 31.0GiB   97.10%   1.2GB / 3.4GB   0B / 0B   412"], "nearly all"),
        (["{'loss': 1.9, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}",
          "{'loss': nan, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.2}"], "newest 1 logged"),
    ],
)  # fmt: skip
def test_too_little_for_a_finding_is_too_much_for_health(judged, lines, word):
    status, found, told = judged(*lines)
    assert (status, found) == ("unknown", [])
    assert len(told) == 1
    assert word in told[0]
    assert judged(*lines, lang="zh")[2][0].startswith("无法判断：")


def test_an_xid_of_a_program_beside_a_server_that_serves(judged):
    assert judged(XID.format(31), BANNER, READY, STATS.format(1), STATS.format(2)) == ("ok", [], [])


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        (["{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}"] * 2, "dtype-overflow"),
        ([XID.format(79)], "gpu-hardware-error"),
        ([BANNER, "INFO 06-01 10:00:05 [pynccl.py:70] vLLM is using nccl==2.26.2",
          "WARNING 06-01 10:00:06 [custom_all_reduce.py:85] Custom allreduce is disabled because your platform"
          " lacks GPU P2P capability or P2P test failed.", RING.format(2), RING.format(3)], "p2p-hang"),
        ([BANNER, READY, "WARNING 06-01 10:04:05 [scheduler.py:1] Sequence group chatcmpl-1 is preempted by"
          " PreemptionMode.RECOMPUTE mode because there is not enough KV cache space."
          " total_num_cumulative_preemption=501"], "kv-thrashing-preemption"),
    ],
)  # fmt: skip
def test_what_one_line_or_two_do_show(judged, lines, finding):
    assert judged(*lines)[1] == [finding]
