"""Recordings as readings: in order of time, tolerant of damage, without the label."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from infradoc.sources.recording import RecordedTick, Recording

PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} %d\n'


def write(folder: Path, scrapes: list[Any], **files: str | list[Any]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in scrapes]
    if lines:
        (folder / "scrapes.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return folder


def scrape(t: float, running: int = 1) -> dict[str, Any]:
    return {"t": t, "url": "http://h:1/metrics", "status": 200, "body": PAGE % running}


def by_source(tick: RecordedTick) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for reading in tick.readings:
        found.setdefault(reading.source, []).append(reading.time)
    return found


def test_everything_comes_at_its_own_time(tmp_path: Path) -> None:
    host = [{"t": t, "ncpu": 2} for t in (10.5, 11.5, 12.5)]
    client = [
        {"id": 1, "start": 9.0, "e2e": 1.7, "ttft": 0.1, "status": 200, "finish_reason": "stop", "class": "c"},
        {"id": 2, "start": 9.0, "e2e": 3.0, "ttft": 0.1, "status": 200, "finish_reason": "stop", "class": "c"},
    ]
    path = write(tmp_path / "r", [scrape(10), scrape(11), scrape(12)], host__jsonl__gz=host, client__jsonl=client)
    first, second, third = Recording(path).ticks()
    assert [tick.now for tick in (first, second, third)] == [10.0, 11.0, 12.0]
    assert "host" not in by_source(first) and by_source(second)["host"] == [10.5] and by_source(third)["host"] == [11.5]
    counts = []
    for tick in (first, second, third):
        samples = [s for r in tick.readings if r.source == "client" for s in r.samples]
        counts.append(sum(s.value for s in samples if s.name == "client_requests_total"))
    assert counts == [0, 1, 2]


def test_failed_scrapes_and_damaged_lines(tmp_path: Path) -> None:
    down = {"t": 11, "url": "http://h:1/metrics", "status": 0, "error": "Connection refused"}
    path = write(tmp_path / "r", [scrape(10), down, "{broken", "[1]", '{"no": "time"}', scrape(12)])
    recording = Recording(path)
    ticks = list(recording.ticks())
    assert [tick.now for tick in ticks] == [10.0, 11.0, 12.0]
    assert ticks[1].readings[-1].error == "http://h:1/metrics gave no page: Connection refused."
    assert recording.bad_lines == 3


def test_hostile_rows_are_counted_not_fatal(tmp_path: Path) -> None:
    page = {**scrape(11), "body": PAGE % 2 + "# \ud800\n"}
    rows = [scrape(10), page, {**scrape(1), "t": float("nan")}, {**scrape(1), "t": 10**400}, {**scrape(1), "t": 1e18}]
    deep = '{"t": ' + "[" * 100_000
    path = write(tmp_path / "r", [*rows, deep], server__log="INFO 11-29 20:52:42 [core.py:1] ready\n")
    recording = Recording(path)
    assert [tick.now for tick in recording.ticks()] == [10.0, 11.0]
    assert recording.bad_lines >= 4


def test_part_of_the_time(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [scrape(t) for t in range(10, 20)])
    assert [tick.now for tick in Recording(path).ticks(since=12, until=15)] == [12.0, 13.0, 14.0, 15.0]
    assert len(list(Recording(path).ticks(since=100))) == 1  # nothing in that time: one tick that shows nothing


def test_facts_of_launch_and_meta(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r", [scrape(1)], launch__txt="vllm serve m --max-num-seqs 4", meta__json='{"version": "0.32"}'
    )
    (tick,) = Recording(path).ticks()
    facts = {fact.name: fact.value for reading in tick.readings for fact in reading.facts}
    assert facts["max_num_seqs"] == 4 and facts["target.version"] == "0.32" and facts["target.system"] == "vllm"


def test_log_alone_gives_one_tick(tmp_path: Path) -> None:
    log = "(APIServer pid=1) INFO 11-29 20:50:38 [api_utils.py:286]  version 0.32.0\n"
    (tick,) = Recording(write(tmp_path / "r", [], server__log=log)).ticks()
    assert [event.name for reading in tick.readings for event in reading.events] == ["launched"]


def test_another_system_is_a_fault_not_a_crash(tmp_path: Path) -> None:
    row = {"t": 1, "url": "http://h:9100/metrics", "status": 200, "body": "node_load1 0.5\n"}
    (tick,) = Recording(write(tmp_path / "r", [row])).ticks()
    assert "another system" in str(tick.readings[-1].error)


@pytest.mark.parametrize("meta", ["{broken", "[]", '"x"'])
def test_broken_meta(tmp_path: Path, meta: str) -> None:
    assert Recording(write(tmp_path / "r", [scrape(1)], meta__json=meta)).meta == {}


def test_real_recordings_are_read_whole(recordings_dir: Path) -> None:
    for path in sorted(recordings_dir.glob("*-*")):
        recording = Recording(path)
        assert "label.yaml" not in recording.names
        ticks = list(recording.ticks())
        assert len(ticks) > 50 and recording.bad_lines == 0
        assert [tick.now for tick in ticks] == sorted(tick.now for tick in ticks)
