"""Logs: typed events with times, following a file, and stamps that count from the start."""

from __future__ import annotations

import calendar
from pathlib import Path

from infradoc.sources.log import LogSource, last_offset, scan_recorded

VLLM = (
    b"(APIServer pid=1) INFO 11-29 20:50:38 [api_utils.py:286]  version 0.32.0\n",
    b"(EngineCore pid=2) INFO 11-29 20:51:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    b"Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 50.0%, "
    b"Prefix cache hit rate: 0.0%\n",
    b"what is this line\n",
)
LLAMA = (
    b"0.00.001.732 I srv  llama_server: initializing ...\n",
    b"1.17.751.104 E srv    send_error: task id = 910, error: request (2099 tokens) exceeds the available context size "
    b"(1024 tokens), try increasing it\n",
)


def test_recorded_log_takes_year_from_the_recording() -> None:
    at = calendar.timegm((2026, 11, 29, 20, 52, 0, 0, 0, 0))
    found = scan_recorded(VLLM, "server.log", None, [float(at)])
    stats = next(event for event in found.events if event.name == "stats_line")
    assert stats.time == calendar.timegm((2026, 11, 29, 20, 51, 0, 0, 0, 0))
    assert stats.fields["running"] == 3 and stats.source == "server.log:2"
    assert found.facts["target.version"].value == "0.32.0" and found.unparsed == 1


def test_stamps_from_the_start_hang_on_the_end_of_the_recording() -> None:
    found = scan_recorded(LLAMA, "server.log", "llamacpp", [1000.0, 2000.0])
    refused = next(event for event in found.events if event.name == "request_rejected_length")
    assert refused.time is not None and abs(refused.time - 2000.0) < 1e-6
    assert refused.fields["limit"] == 1024


def test_unknown_log_is_counted_not_guessed() -> None:
    found = scan_recorded([b"hello\n", b"\xff\xfe\n"], "x.log", None, [])
    assert (found.events, found.unparsed) == ((), 2)
    assert last_offset(["hello"]) is None


def test_follows_a_file_and_dates_new_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    source = LogSource(path)
    assert not source.is_supported() and "no file" in str(source.why_not())
    path.write_bytes(LLAMA[0] + LLAMA[1])
    first = source.read(100.0)
    old = [event for event in first.events if event.name == "request_rejected_length"]
    assert len(old) == 1 and old[0].time is None
    with path.open("ab") as handle:
        handle.write(LLAMA[1])
    second = source.read(101.0)
    assert [event.time for event in second.events] == [101.0]
    assert source.read(102.0).events == []
    path.write_bytes(LLAMA[1][:0])
    assert source.read(103.0).error is None
