"""From the bytes of a metrics page to canonical samples and facts: recognise the engine, scan, map, merge."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from infradoc.model import Sample
from infradoc.sources.scan import Labels, PageScanner
from infradoc_rules.maps import SignalMap, detect, load_map
from infradoc_rules.maps.info import InfoReading
from infradoc_rules.model import Fact
from infradoc_rules.signals import signal_table

_NAMES = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]", re.MULTILINE)
_MAX_SAMPLES = 100_000
_INFINITE = float("inf")
# A page whose labels change at every scrape (request ids) would make the memory of its series grow for ever.
MAX_KNOWN_SERIES = 50_000


class UnknownPage(Exception):
    """A metrics page of something that infradoc has no map for; `names` are some of its metrics."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass(slots=True)
class MappedPage:
    """What one page said. `garbage` counts lines that are no samples, or whose value cannot be; `complete` is an
    OpenMetrics end mark."""

    samples: list[Sample] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    garbage: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class _Slot:
    """A canonical series of the target. `adds`: several raw series of one name are summed, else the largest counts.

    part_of: this is no series but one term of that slot's sum: the largest of several ranks that count the same work.
    """

    index: int
    owner: str
    name: str
    labels: tuple[tuple[str, str], ...]
    adds: bool
    part_of: int | None = None


_Target = tuple[int, float]  # (slot index, factor), or (info index, 0.0)


class PageMapper:
    """Maps pages of one target; remembers what each series means from page to page."""

    def __init__(self, system: str | None = None) -> None:
        self.system: str | None = None
        self.buckets: frozenset[str] | None = None  # canonical `_bucket` series to keep; None: all
        self.provides: frozenset[str] = frozenset()
        self._map: SignalMap | None = None
        self._scanner: PageScanner[_Target] | None = None
        if system:
            self._use(system)

    def _use(self, system: str) -> None:
        self.system = system
        self._map = load_map(system)
        self.provides = self._map.provides
        self._scanner = PageScanner(self._map.names, self._resolve)
        self._slots: list[_Slot] = []
        self._by_series: dict[tuple[str, tuple[tuple[str, str], ...]], _Slot] = {}
        self._by_group: dict[tuple[int, tuple[tuple[str, str], ...]], _Slot] = {}
        self._infos: list[tuple[str, Labels]] = []
        self._info_memo: dict[tuple[int, float], InfoReading] = {}

    def page(self, body: bytes, time: float) -> MappedPage:
        """Samples at `time` (Unix seconds) and facts of one page. Raises UnknownPage when no engine is recognised."""
        if self._scanner is None:
            self._use(recognise(body))
        elif len(self._slots) + len(self._infos) > MAX_KNOWN_SERIES:
            self._use(str(self.system))
        assert self._scanner is not None
        scan = self._scanner.scan(body)
        values: dict[int, float] = {}
        found = MappedPage(garbage=scan.garbage, complete=scan.complete)
        extra: list[tuple[str, dict[str, str], float]] = []
        slots = self._slots
        for (index, factor), raw in scan.samples[:_MAX_SAMPLES]:
            if index < 0:
                self._info(-index - 1, raw, found, extra)
                continue
            if raw < 0.0 or raw == _INFINITE:  # no signal can be: some engines write -1 for what they do not know
                found.garbage += 1
                continue
            value = raw if factor == 1.0 else raw * factor
            if index in values:
                before = values[index]
                value = before + value if slots[index].adds else max(before, value)
            values[index] = value
        for part in self._by_group.values():
            if part.index in values and part.part_of is not None:
                values[part.part_of] = values.get(part.part_of, 0.0) + values.pop(part.index)
        append = found.samples.append
        for index, value in values.items():
            slot = slots[index]
            append(Sample(slot.name, slot.labels, time, value))
        present = {slots[index].name for index in values}
        for name, labels, value in extra:
            if name not in present:
                append(Sample(name, tuple(sorted(labels.items())), time, value))
        return found

    def _info(
        self, index: int, value: float, found: MappedPage, extra: list[tuple[str, dict[str, str], float]]
    ) -> None:
        reading = self._info_memo.get((index, value))
        if reading is None:
            name, labels = self._infos[index]
            assert self._map is not None
            reading = self._map.info(name, labels, value) or InfoReading()
            if len(self._info_memo) > 10_000:
                self._info_memo.clear()
            self._info_memo[index, value] = reading
        found.facts.extend(reading.facts)
        extra.extend(reading.samples)

    def _resolve(self, name: str, labels: Labels) -> _Target | None:
        assert self._map is not None
        if self._map.info(name, labels) is not None:
            self._infos.append((name, labels))
            return (-len(self._infos), 0.0)
        mapped = self._map.apply(name, labels)
        if mapped is None:
            return None
        canonical, canonical_labels, factor = mapped
        if self.buckets is not None and canonical.endswith("_bucket") and canonical not in self.buckets:
            return None
        key = (canonical, tuple(sorted(canonical_labels.items())))
        slot = self._by_series.get(key)
        if slot is None:
            spec = signal_table().resolve(canonical)
            adds = spec is not None and spec.kind in ("counter", "histogram")
            slot = _Slot(len(self._slots), name, key[0], key[1], adds)
            self._slots.append(slot)
            self._by_series[key] = slot
        elif slot.owner != name and slot.adds:
            return None  # an old and a new spelling of one counter on the same page: count it once
        if slot.adds and any(rank in labels for rank in self._map.ranks):
            slot = self._part(slot, labels)
        return (slot.index, factor)

    def _part(self, whole: _Slot, labels: Labels) -> _Slot:
        """The term of a sum that a raw series belongs to: one for all ranks that count the same work."""
        assert self._map is not None
        group = tuple(sorted((label, value) for label, value in labels.items() if label not in self._map.ranks))
        part = self._by_group.get((whole.index, group))
        if part is None:
            part = _Slot(len(self._slots), whole.owner, whole.name, whole.labels, False, whole.index)
            self._slots.append(part)
            self._by_group[whole.index, group] = part
        return part


def recognise(body: bytes) -> str:
    """The engine of a page. Raises UnknownPage with the first metric names when it is none we know."""
    names = list(dict.fromkeys(match.decode() for match in _NAMES.findall(body)))
    system = detect(names)
    if system is None:
        raise UnknownPage(names[:3])
    return system


def unknown_page(url: str, names: list[str]) -> tuple[str, str]:
    """Message and hint for a metrics page of another system."""
    if not names:
        return f"{url} holds no metrics.", "Is this the LLM server's own metrics page?"
    shown = ", ".join(names)
    message = f"{url} is a metrics page of another system ({shown} ...), not of an LLM server that infradoc knows."
    return message, "Known: vLLM, SGLang, TGI, llama.cpp, infradoc. Is the port right?"
