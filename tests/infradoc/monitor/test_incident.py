"""A log that tells of something broken, beside metrics that stay calm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.monitor.attach import attach
from infradoc.monitor.incident import KEPT_SECONDS
from infradoc.monitor.loop import Monitor, Tick
from infradoc.report.build import Observation, build_report
from infradoc_rules import engine
from infradoc_rules.catalog import load_catalog
from infradoc_rules.frame import MemoryFrame

pytestmark = pytest.mark.usefixtures("clean_environment")

STAMP = "INFO 06-01 10:00:03 [loggers.py:118] "
STATS = (
    f"{STAMP}Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg generation throughput: 250.0 tokens/s, "
    "Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 20.0%, Prefix cache hit rate: 0.0%"
)
OUT_OF_MEMORY = (
    "(EngineCore_0 pid=99) ERROR 06-01 10:05:00 [core.py:700] EngineCore encountered a fatal error.\n"
    "(EngineCore_0 pid=99) ERROR 06-01 10:05:00 [core.py:700] Traceback (most recent call last):\n"
    '(EngineCore_0 pid=99) ERROR 06-01 10:05:00 [core.py:700]   File "/v/worker/gpu_model_runner.py", line 1, in '
    "execute_model\n"
    "(EngineCore_0 pid=99) ERROR 06-01 10:05:00 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.10 GiB is free. Process 99 has 77.90 GiB "
    "memory in use. Of the allocated memory 74.00 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch "
    "but unallocated.\n"
)
TIMED_OUT = (
    "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)
SHM_FULL = (
    "RuntimeError: unable to open shared memory object </torch_99_1> in read-write mode: No space left on device (28)\n"
)


def watched(server: Any, page: bytes, log: Path, *appended: str, later: float = 0.0) -> Tick:
    """The last tick of a watch during which these texts were written to the log."""
    server.page("/metrics", page)
    config = Config(targets={"t": TargetConfig(url=server.url, log=str(log), host=False)})
    watch = Monitor(attach("t", config), load_catalog())
    for now in range(100, 112):
        watch.tick(float(now))
    for text in appended:
        with log.open("a") as handle:
            handle.write(text)
    for now in range(112, 118):
        tick = watch.tick(float(now))
    if later:
        tick = watch.tick(117 + later)
    watch.close()
    log.with_suffix(".json").write_text(
        json.dumps(build_report(Observation("t", watch.target.store, watch.log, tick.frame, 18.0)))
    )
    return tick


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        pytest.param(OUT_OF_MEMORY, "oom", id="memory"),
        pytest.param(TIMED_OUT, "nccl-timeout", id="nccl"),
        pytest.param(SHM_FULL, "shm-too-small", id="shm"),
    ],
)
@pytest.mark.parametrize("before", ["", STATS + "\n"], ids=["empty log", "log of stats"])
def test_what_breaks_is_told_while_metrics_are_calm(
    server: Any, vllm_page: bytes, tmp_path: Path, before: str, written: str, wanted: str
) -> None:
    log = tmp_path / "server.log"
    log.write_text(before)
    tick = watched(server, vllm_page, log, written)
    found = [finding.id for finding in tick.findings]
    assert found and found[0].startswith(wanted), (found, tick.frame.incident)


def test_what_stood_in_the_log_before_the_watch_is_past(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(OUT_OF_MEMORY + TIMED_OUT + SHM_FULL + STATS + "\n")
    tick = watched(server, vllm_page, log, STATS + "\n")
    assert tick.frame.incident is None and not tick.findings


def test_an_incident_ends(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("")
    assert watched(server, vllm_page, log, TIMED_OUT, later=KEPT_SECONDS + 10).findings == ()


def test_an_error_of_one_request_is_no_incident(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(STATS + "\n")
    refused = 'INFO:     10.0.0.1:4000 - "POST /v1/completions HTTP/1.1" 400 Bad Request\n'
    tick = watched(server, vllm_page, log, refused * 3, STATS + "\n")
    assert tick.frame.incident is None and not tick.findings


def test_what_no_rule_explains_is_shown_and_not_called_healthy(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(STATS + "\n")
    watched(server, vllm_page, log, STATS + "\n")
    assert json.loads((tmp_path / "server.json").read_text())["status"] == "ok"
    died = "ERROR 06-01 10:05:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died unexpectedly, shutting down "
    tick = watched(server, vllm_page, log, died + "executor.\n")
    assert tick.frame.incident is not None and not tick.findings
    report = json.loads((tmp_path / "server.json").read_text())
    assert report["status"] == "unknown"
    assert any("VllmWorker-1 died unexpectedly" in line for line in report["not_visible"])


def test_an_incident_is_judged_once_and_not_at_each_look(
    server: Any, vllm_page: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []  # a frame for each post-mortem part that was judged on an incident
    real = engine.judge_post_mortem

    def counting(part: Any, frame: Any, names: Any) -> Any:
        judged.extend([frame] if isinstance(frame, MemoryFrame) else [])
        return real(part, frame, names)

    monkeypatch.setattr(engine, "judge_post_mortem", counting)
    log = tmp_path / "server.log"
    log.write_text("")
    server.page("/metrics", vllm_page)
    config = Config(targets={"t": TargetConfig(url=server.url, log=str(log), host=False)})
    watch = Monitor(attach("t", config), load_catalog())
    for now in range(100, 170, 10):  # until `$seen` stands still: for each other value of it all is judged anew
        watch.tick(float(now))
    looks = []
    for now in range(170, 176):
        if now in (171, 174):
            with log.open("a") as handle:
                handle.write(TIMED_OUT)
        before = len(judged)
        tick = watch.tick(float(now))
        looks.append(len(judged) - before)
    watch.close()
    assert tick.findings[0].id == "nccl-timeout"
    assert [count > 0 for count in looks] == [False, True, False, False, True, False], looks
