"""Files of a control group: cpu.stat, cpu.max, memory.*, of both versions, with or without their names before them."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Value

_NAME = lazy(
    r"(?:^|/|\s)(?P<file>cpu\.(?:stat|max|cfs_quota_us|cfs_period_us|weight|pressure)"
    r"|memory\.(?:max|high|current|peak|events|stat|limit_in_bytes|usage_in_bytes|max_usage_in_bytes|swap\.current|swap\.max|failcnt)"
    r"|cpuset\.cpus(?:\.effective)?)(?::| *=| |$)"
)
_STAT = lazy(
    r"^\s*(?P<key>nr_periods|nr_throttled|throttled_usec|throttled_time|usage_usec|user_usec|system_usec|nr_bursts"
    r"|burst_usec|oom_kill|oom_group_kill|oom|low|high|max|anon|file|kernel|slab|shmem)[ =:]+(?P<value>\d+)\s*$"
)
_QUOTA = lazy(r"^(?P<quota>max|-1|\d{3,9}) (?P<period>\d{4,7})$")
_NUMBER = lazy(r"(?P<value>max|-?\d+)\s*$")
_SURE = ("nr_periods", "nr_throttled", "throttled_usec", "throttled_time", "oom_kill")
_UNLIMITED = 1 << 60  # version 1 writes nearly 2^63 for no limit
_MEMORY = {
    "memory.max": "cgroup.memory_limit_bytes",
    "memory.limit_in_bytes": "cgroup.memory_limit_bytes",
    "memory.current": "cgroup.memory_bytes",
    "memory.usage_in_bytes": "cgroup.memory_bytes",
    "memory.peak": "cgroup.memory_peak_bytes",
    "memory.max_usage_in_bytes": "cgroup.memory_peak_bytes",
    "memory.swap.current": "cgroup.swap_bytes",
}


class CgroupKind:
    """Quota, throttling and memory of a container."""

    name = "cgroup"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of names and values; a run needs a name or a key that nothing else prints."""
        found = runs(lines, _mine, gap=1)
        return [span for span in found if any(_sure(line) for line in lines[span[0] : span[1]]) or _alone(lines, span)]

    def read(self, segment: Segment) -> Artefact:
        """`cpu_throttled` events and the facts cgroup.*."""
        out = Artefact()
        reader = _Reader(segment, out)
        for index, line in enumerate(segment.lines):
            reader.line(index, line)
        reader.end()
        return out


def _mine(line: str) -> bool:
    text = line.strip()
    return bool((_NAME.search(text) and len(text) <= 160) or _STAT.match(text) or _QUOTA.match(text) or text.isdigit())


def _sure(line: str) -> bool:
    found = _STAT.match(line)
    if found is not None:
        return found["key"] in _SURE
    name = _NAME.search(line.strip())
    # A sentence may name the file; then no value and no path stands there.
    return name is not None and ("/" in line or len(line.split()) <= 3)


def _alone(lines: Sequence[str], span: Span) -> bool:
    """cpu.max as a file of its own."""
    return sum(1 for line in lines if line.strip()) == 1 and _QUOTA.match(lines[span[0]].strip()) is not None


class _Reader:
    """Reads the values under the file name that stands before them."""

    def __init__(self, segment: Segment, out: Artefact) -> None:
        self.segment, self.out = segment, out
        self.file = ""
        self.stat: dict[str, int] = {}
        self.place = 0
        self.period = 100_000

    def line(self, index: int, line: str) -> None:
        text = line.strip()
        name = _NAME.search(text)
        if name is not None:
            self.file = name["file"]
            text = text[name.end() :].strip()
        found = _STAT.match(text)
        if found is not None and not self.file.startswith("memory.stat"):
            self._stat(index, found["key"], int(found["value"]))
        elif text:
            self._value(index, text)

    def _stat(self, index: int, key: str, value: int) -> None:
        if key == "oom_kill":
            self._fact("cgroup.oom_kills", value, index)
        if key == "nr_periods" and self.stat:
            self.end()
        if key.startswith(("nr_", "throttled")):
            self.place = index if key == "nr_throttled" else self.place
            self.stat[key] = value

    def _value(self, index: int, text: str) -> None:
        quota = _QUOTA.match(text)
        if quota is not None and self.file in ("", "cpu.max"):
            if quota["quota"].isdigit():
                self._fact("cgroup.cpu_quota", int(quota["quota"]) / int(quota["period"]), index)
            return
        number = _NUMBER.search(text)
        if number is None or number["value"] in ("max", "-1"):
            return
        value = int(number["value"])
        if self.file == "cpu.cfs_period_us":
            self.period = value
        elif self.file == "cpu.cfs_quota_us":
            self._fact("cgroup.cpu_quota", value / self.period, index)
        elif self.file in _MEMORY and value < _UNLIMITED:
            self._fact(_MEMORY[self.file], value, index)

    def end(self) -> None:
        """What cpu.stat said in all."""
        periods, throttled = self.stat.get("nr_periods"), self.stat.get("nr_throttled")
        if periods is not None and throttled is not None:
            fields: dict[str, Value] = {"periods": periods, "throttled": throttled}
            if "throttled_usec" in self.stat or "throttled_time" in self.stat:
                micro = self.stat.get("throttled_usec", self.stat.get("throttled_time", 0) / 1000)
                fields["seconds"] = micro / 1e6
            text = self.segment.lines[self.place][:200]
            self.out.events.append(Event("cpu_throttled", 0, fields, source=self.segment.place(self.place), text=text))
            if periods > 0:
                self._fact("cgroup.throttled_share", throttled / periods, self.place)
        self.stat = {}

    def _fact(self, name: str, value: Value, index: int) -> None:
        self.out.facts.append(Fact(name, value, "config", self.segment.place(index)))
