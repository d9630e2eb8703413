"""Shared by the rule tests: recordings replayed into a MemoryFrame, rule files made up in a temporary folder."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infradoc_rules.catalog import load_catalog
from infradoc_rules.engine import RuleResults, evaluate_rules, findings
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.lifecycle import RuleStates
from infradoc_rules.maps import SignalMap, detect, load_map
from infradoc_rules.model import Event, Fact, Finding, Series
from infradoc_rules.patterns import length_error, scan

DATA = Path(__file__).parents[1] / "data"
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ROLES = {"APIServer": "api", "EngineCore": "engine", "Worker": "worker", "llama-server": "engine"}


class Collector:
    """Samples in, series out."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[list[float], list[float]]] = {}
        self.facts: dict[str, Fact] = {}

    def add(self, name: str, labels: Mapping[str, str], time: float, value: float) -> None:
        times, values = self.points.setdefault((name, tuple(sorted(labels.items()))), ([], []))
        if not times or times[-1] < time:
            times.append(time)
            values.append(value)

    def page(self, signal_map: SignalMap, body: str, time: float) -> None:
        for line in body.splitlines():
            match = _SAMPLE.match(line) if not line.startswith("#") else None
            if match is None or match[1] not in signal_map.names:
                continue
            labels, value = dict(_LABEL.findall(match[2] or "")), float(match[3])
            mapped = signal_map.apply(match[1], labels)
            if mapped is not None:
                self.add(mapped[0], mapped[1], time, value * mapped[2])
            info = signal_map.info(match[1], labels, value)
            for fact in info.facts if info else ():
                self.facts[fact.name] = fact
            for name, derived, number in info.samples if info else ():
                self.add(name, derived, time, number)

    def host(self, rows: Iterator[Mapping[str, Any]]) -> None:
        seconds: dict[int, float] = {}
        modes: dict[str, float] = {}
        last: float | None = None
        for row in rows:
            for process in row["procs"]:
                role, pid = _ROLES.get(process["role"]), process["pid"]
                if role is None:
                    continue
                elapsed = 0.0 if last is None else row["t"] - last
                seconds[pid] = seconds.get(pid, 0.0) + process["cpu_percent"] / 100 * elapsed
                self.add("proc_cpu_seconds_total", {"role": role, "pid": str(pid)}, row["t"], seconds[pid])
                if process.get("run_delay_s_total") is not None:
                    labels = {"role": role, "pid": str(pid)}
                    self.add("proc_run_queue_seconds_total", labels, row["t"], process["run_delay_s_total"])
            self._cores(row, modes, 0.0 if last is None else row["t"] - last)
            last = row["t"]

    def _cores(self, row: Mapping[str, Any], modes: dict[str, float], elapsed: float) -> None:
        """Cores, CPU time by mode and pressure of the host; recordings hold them as shares of a second."""
        self.add("host_cpus", {}, row["t"], row["ncpu"])
        for mode, percent in row["cpu_times_percent"].items():
            modes[mode] = modes.get(mode, 0.0) + percent / 100 * row["ncpu"] * elapsed
            self.add("host_cpu_seconds_total", {"mode": mode}, row["t"], modes[mode])
        for share, percent in row.get("psi_cpu_avg10", {}).items():
            labels = {"resource": "cpu", "share": share, "window": "10s"}
            self.add("host_pressure_ratio", labels, row["t"], percent / 100)

    def client(self, rows: list[Mapping[str, Any]], times: list[float]) -> list[Event]:
        def end(row: Mapping[str, Any]) -> float:
            return float(row["start"] + (row["e2e"] or 0))

        done = sorted((row for row in rows if row["status"] is not None), key=end)
        events, words, tokens, place = [], 0.0, 0.0, 0
        counts = {"ok": 0, "http_4xx": 0}
        for time in times:
            while place < len(done) and end(done[place]) <= time:
                row = done[place]
                place += 1
                if row["status"] == 200:
                    counts["ok"] += 1
                    words += row["prompt_words"]
                    tokens += row["prompt_tokens"] or 0
                    continue
                counts["http_4xx"] += 1
                event = length_error(str(row["error"]))
                if event is not None:
                    events.append(Event(event.name, 1_000_000 + place, event.fields, time, "serving", "client.jsonl"))
            self.add("client_prompt_words_total", {}, time, words)
            self.add("client_prompt_tokens_total", {}, time, tokens)
            for outcome, count in counts.items():
                self.add("client_requests_total", {"outcome": outcome}, time, count)
        return events


@dataclass(frozen=True)
class Replayed:
    """What the rules said over a whole recording: ids that ever fired with the share of ticks, and the end."""

    fired: Mapping[str, int]
    ticks: int
    results: RuleResults
    findings: list[Finding]
    frame: MemoryFrame


@lru_cache(maxsize=32)
def _frame(name: str, parts: frozenset[str]) -> tuple[MemoryFrame, tuple[float, ...]]:
    folder, collector, times = DATA / "recordings" / name, Collector(), []
    signal_map: SignalMap | None = None
    with gzip.open(folder / "scrapes.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            if row.get("status") != 200:
                continue
            signal_map = signal_map or load_map(str(detect(row["body"])))
            times.append(row["t"])
            collector.page(signal_map, row["body"], row["t"])
    events: list[Event] = []
    if "log" in parts:
        seen = scan((folder / "server.log").read_text().splitlines(), source="server.log", year=2026)
        events += seen.events
        collector.facts.update({name: fact for name, fact in seen.facts.items() if name not in collector.facts})
    if "host" in parts and times:
        with gzip.open(folder / "host.jsonl.gz", "rt") as lines:
            collector.host(map(json.loads, lines))
    if "client" in parts and times:
        rows = [json.loads(line) for line in (folder / "client.jsonl").read_text().splitlines()]
        events += collector.client(rows, times)
    series = [Series(n, dict(labels), *points) for (n, labels), points in collector.points.items()]
    frame = MemoryFrame.build(
        series,
        now=times[-1] if times else 0.0,
        events=events,
        facts=collector.facts.values(),
        system=signal_map.system if signal_map else None,
        provides=signal_map.provides if signal_map else None,
    )
    return frame, tuple(times)


@pytest.fixture(scope="session")
def replay() -> Callable[..., Replayed]:
    """replay(name, *parts): the packaged rules over a recording, with those of log, host, client that are named."""

    @lru_cache(maxsize=32)
    def run(name: str, *parts: str) -> Replayed:
        frame, times = _frame(name, frozenset(parts))
        states, fired = RuleStates(), {}
        for time in times or (0.0,):
            results = evaluate_rules(load_catalog(), frame.at(time), states)
            for result in results.results:
                if result.state == "firing":
                    fired[result.id] = fired.get(result.id, 0) + 1
        return Replayed(fired, max(1, len(times)), results, findings(results), frame)

    return run


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recordings."""
    return DATA / "recordings"


def _rule() -> dict[str, Any]:
    text = {"en": "a text", "zh": "一段文字"}
    return {
        "schema": 1,
        "id": "queue-saturation",
        "title": text,
        "severity": "warning",
        "thresholds": {"limit": 3},
        "live": {"when": ["sum(llm_requests_waiting) > $limit"], "for": 0, "keep": 0},
        "prior": 0.0,
        "cause": text,
        "impact": text,
        "falsifier": text,
        "false_alarms": ["none known"],
    }


@pytest.fixture
def rule_data() -> dict[str, Any]:
    """A small sound rule as data, to be changed by a test."""
    return _rule()


CASES = {
    "cases": [
        {"name": "many", "expect": "fires", "series": {"llm_requests_waiting": 9}},
        {"name": "none", "expect": "quiet", "series": {"llm_requests_waiting": 0}},
        {"name": "blind", "expect": "unknown", "series": {"llm_requests_running": 0}},
    ]
}


@pytest.fixture
def write_rule(tmp_path: Path) -> Callable[..., Path]:
    """write_rule(data, area=..., cases=...): a catalog folder with this one rule; returns the rule's path."""

    def write(data: Any, area: str = "scheduling", name: str | None = None, cases: Any = CASES) -> Path:
        folder = tmp_path / "catalog" / area
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name or data['id']}.yaml"
        text = data if isinstance(data, str) else yaml.safe_dump(data, allow_unicode=True, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        if cases is not None:
            path.with_name(f"{path.stem}.cases.yaml").write_text(yaml.safe_dump(cases), encoding="utf-8")
        return path

    return write
