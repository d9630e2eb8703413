"""Metrics pages as series under canonical names, and as facts.

One scrape, several after one another, or samples with their own time stamps (a range asked of Prometheus). Facts:

    metrics.<signal>           the newest value: summed over label sets, the largest one of ratios
    metrics.<signal>.<value>   that of one label value, such as metrics.llm_requests_finished_total.length
    metrics.<signal>.first     the value in the first of several scrapes
    metrics.<signal>.mean      of a histogram: sum over count
    metrics.seconds            from the first to the last of metrics.scrapes

Of other exporters the memory of a container is kept, as proc_resident_memory_bytes{role="container"}, and what DCGM's
says of devices becomes `gpu_state` events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from infradoc.artefacts.kinds import dcgm, metrics_asked
from infradoc.artefacts.kinds.metrics_names import places, usual
from infradoc.artefacts.kinds.nvidia_state import facts_of
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc.model import Sample
from infradoc.sources.mapping import PageMapper, UnknownPage
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact, Series, Value

Labels = tuple[tuple[str, str], ...]

STEP = 15.0  # seconds between scrapes that do not say when they were taken: the usual interval
MAX_SCRAPES = 2_000
_MOST_VALUES = 200  # label values of one signal that become facts
_SAMPLE = lazy(
    r"^(?P<name>[a-zA-Z_:](?:[\w:]*\w)?)(?P<labels>\{[^{}]*\})? +(?P<value>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|Inf|NaN))"
    r"(?: +(?P<time>\d{9,16}(?:\.\d+)?))?\s*$"
)
_COMMENT = lazy(r"^# (?:HELP|TYPE|UNIT|EOF)\b")
_WHEN = lazy(r"^#.*?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_CLOCK = lazy(r"^#\D*(\d\d):(\d\d):(\d\d)\b")
_OFFSET = lazy(r"^#.*?\b(?:t|after) ?=? ?\+?(\d+(?:\.\d+)?) ?s\b")
_MEASURED = lazy(r"(?i)(?:^|_)(?:p\d{2}|median|mean|avg)(?:_|$)|_(?:ms|tok_s|toks_s|req_s)$")
_LOOK = {
    "llm_requests_running": "running",
    "llm_requests_waiting": "waiting",
    "llm_generation_tokens_total": "generated",
    "llm_prompt_tokens_total": "prompted",
    "llm_requests_finished_total": "finished",
}
_LEAST_VALUES = 1_000  # of a histogram, before its tail says anything
_PERIODS = ("container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total")
_MEMORY = ("container_memory_rss", "container_memory_working_set_bytes")


class MetricsKind:
    """Prometheus text."""

    name = "metrics"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of samples and comments; a line that says when a scrape was taken may stand between."""
        found = runs(lines, _mine, gap=2, at_least=2)
        found = [span for span in found if any(map(_telling, lines[slice(*span)])) and not _bench(lines[slice(*span)])]
        return [*(_with_time(lines, span) for span in found), *metrics_asked.spans(lines)]

    def read(self, segment: Segment) -> Artefact:
        """Series and facts. A page of a server that has no map is read for its facts alone."""
        out = Artefact()
        lines = [usual(line) for line in metrics_asked.as_page(segment.lines)]
        scrapes = list(_scrapes(lines))[:MAX_SCRAPES]
        samples: dict[tuple[str, Labels], list[tuple[float, float]]] = defaultdict(list)
        mapper = PageMapper()
        for when, page in scrapes:
            body = "\n".join(_without_time(line) for line in page).encode() + b"\n"
            try:
                found = mapper.page(body, when)
            except UnknownPage:
                found = None
            if found is not None:
                out.system = mapper.system
                out.facts += found.facts
                _keep(samples, found.samples)
            for name, labels, value in _foreign(page):
                samples[name, labels].append((when, value))
        place = segment.place(0)
        out.series = [_series(name, labels, points) for (name, labels), points in samples.items()]
        devices = dcgm.events(scrapes, place)
        out.events += [*_memory(out.series, place, len(scrapes)), *_throttled(scrapes, place), *devices]
        out.facts += facts_of(devices, segment)
        out.facts += [Fact(fact.name, fact.value, "metrics", place) for fact in _facts(samples, scrapes)]
        if out.system:
            out.facts.append(Fact("target.system", out.system, "metrics", place))
            limits = (places(usual(line)) for line in segment.lines)
            out.facts += [Fact("max_num_seqs", limit, "metrics", place) for limit in limits if limit][:1]
        if len(scrapes) == 1 and (look := _page(samples, place)) is not None:
            out.events.append(look)
        return out


def _mine(line: str) -> bool:
    return _COMMENT.match(line) is not None or _telling(line)


def _telling(line: str) -> bool:
    match = _SAMPLE.match(line)
    return match is not None and (match["labels"] is not None or "_" in match["name"] or ":" in match["name"])


def _bench(lines: Sequence[str]) -> bool:
    """Whether bare names with values are what a client measured: quantiles, milliseconds; no exporter names them so."""
    matches = [match for line in lines if (match := _SAMPLE.match(line))]
    if any(match["labels"] is not None or ":" in match["name"] for match in matches) or any(map(_COMMENT.match, lines)):
        return False
    return sum(1 for match in matches if _MEASURED.search(match["name"])) >= 2


def _with_time(lines: Sequence[str], span: Span) -> Span:
    """The span with a comment above it that says when the first scrape was taken."""
    start, end = span
    above = lines[start - 1] if start else ""
    return (start - 1, end) if above.startswith("#") and not above.startswith("##") else span


def _scrapes(lines: Sequence[str]) -> Iterator[tuple[float, list[str]]]:
    """(time, lines) of each scrape: parted by their own stamps, else where a series comes again."""
    stamped: dict[float, list[str]] = defaultdict(list)
    pages: list[tuple[float | None, list[str]]] = [(None, [])]
    seen: set[str] = set()
    for line in lines:
        match = _SAMPLE.match(line)
        if match is None:
            when = _time_in(line)
            if when is not None:
                pages.append((when, []))
                seen = set()
            continue
        if match["time"]:
            stamp = float(match["time"])
            stamped[stamp / 1000 if stamp > 1e11 else stamp].append(line)
            continue
        series = match["name"] + (match["labels"] or "")
        if series in seen:
            pages.append((None, []))
            seen = set()
        seen.add(series)
        pages[-1][1].append(line)
    filled = [(when, page) for when, page in pages if page]
    yield from sorted([*stamped.items(), *_timed(filled, max(stamped, default=None))], key=lambda one: one[0])


def _timed(pages: Sequence[tuple[float | None, list[str]]], last: float | None) -> Iterator[tuple[float, list[str]]]:
    """Scrapes with a time each: their own, else one step after the one before."""
    now = last if last is not None else 1_700_000_000.0
    for place, (when, page) in enumerate(pages):
        now = when if when is not None and (not place or when > now) else now + STEP if place else now
        yield now, page


def _time_in(line: str) -> float | None:
    """Unix seconds (or seconds since some beginning) in a comment between scrapes; None when it has none."""
    if not line.startswith("#") or _COMMENT.match(line):
        return None
    if found := _WHEN.match(line):
        when = datetime.fromisoformat(found[1].replace(" ", "T") + (found[2] or ""))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if found := _CLOCK.match(line):
        return 3600.0 * int(found[1]) + 60 * int(found[2]) + int(found[3])
    found = _OFFSET.match(line)
    return float(found[1]) if found else None


def _without_time(line: str) -> str:
    match = _SAMPLE.match(line)
    return f"{match['name']}{match['labels'] or ''} {match['value']}" if match and match["time"] else line


def _page(samples: Mapping[tuple[str, Labels], list[tuple[float, float]]], place: str) -> Event | None:
    """A page of one scrape as an event: two files with a page each are two looks at one server."""
    sums: dict[str, float] = defaultdict(float)
    for (name, _), points in samples.items():
        if name in _LOOK:
            sums[_LOOK[name]] += points[-1][1]
    if "running" not in sums:
        return None
    text = ", ".join(f"{name} {value:g}" for name, value in sums.items())
    return Event("metrics_page", 0, {name: float(value) for name, value in sums.items()}, source=place, text=text)


def _foreign(page: Sequence[str]) -> Iterator[tuple[str, Labels, float]]:
    """Memory of the container as other exporters give it, under the canonical name of a process's memory."""
    for line in page:
        if line.startswith(_MEMORY) and (match := _SAMPLE.match(line)):
            yield "proc_resident_memory_bytes", (("role", "container"),), float(match["value"])


def _throttled(scrapes: Sequence[tuple[float, list[str]]], place: str) -> list[Event]:
    """CFS periods of a container as cAdvisor counts them: since the first scrape, or since ever where there is one."""
    sums: list[dict[str, float]] = []
    for _, page in scrapes:
        found: dict[str, float] = defaultdict(float)
        for line in page:
            if line.startswith("container_cpu_cfs_") and (match := _SAMPLE.match(line)):
                found[match["name"]] += float(match["value"])
        sums.append(found)
    told = [found for found in sums if all(found.get(name) for name in _PERIODS)]
    if not told:
        return []
    periods, throttled = (told[-1][name] - (told[0][name] if len(told) > 1 else 0.0) for name in _PERIODS)
    fields: dict[str, Value] = {"periods": round(periods), "throttled": round(throttled)}
    return [Event("cpu_throttled", 0, fields, source=place, text=f"{throttled:.0f} of {periods:.0f} CFS periods")]


def _memory(series: Sequence[Series], place: str, scrapes: int) -> list[Event]:
    """Memory over time as `process_usage` events, as other tools' snapshots give it.

    A page of one scrape gives one: several files may hold a page each.
    """
    found = []
    for one in series:
        if one.name == "proc_resident_memory_bytes" and (len(one.times) >= 3 or scrapes == 1):
            name = str(one.labels.get("role", "server"))
            for when, value in list(zip(one.times, one.values, strict=True))[:_MOST_VALUES]:
                fields: dict[str, Value] = {"name": name, "bytes": round(value), "seconds": float(when)}
                found.append(Event("process_usage", 0, fields, source=place, text=f"{name} memory {value:.0f}"))
    return found


def _keep(samples: dict[tuple[str, Labels], list[tuple[float, float]]], found: Sequence[Sample]) -> None:
    for sample in found:
        points = samples[sample.name, tuple(sample.labels)]
        if not points or sample.time > points[-1][0]:
            points.append((sample.time, sample.value))


def _series(name: str, labels: Labels, points: Sequence[tuple[float, float]]) -> Series:
    rising = [point for place, point in enumerate(points) if not place or point[0] > points[place - 1][0]]
    return Series(name, dict(labels), [when for when, _ in rising], [value for _, value in rising])


def _facts(
    samples: Mapping[tuple[str, Labels], list[tuple[float, float]]], scrapes: Sequence[tuple[float, list[str]]]
) -> Iterator[Fact]:
    times = [when for when, _ in scrapes]
    if len(times) > 1:
        yield Fact("metrics.seconds", max(times) - min(times), "metrics")
    yield Fact("metrics.scrapes", len(times), "metrics")
    grouped: dict[str, list[tuple[Labels, float, float]]] = defaultdict(list)
    for (name, labels), points in samples.items():
        grouped[name].append((labels, points[0][1], points[-1][1]))
    for name, rows in grouped.items():
        if name.endswith("_bucket"):
            yield from _quantiles(name.removesuffix("_bucket"), rows)
            continue
        join = max if name.endswith("_ratio") else sum
        yield Fact(f"metrics.{name}", float(join(last for _, _, last in rows)), "metrics")
        if len(times) > 1:
            yield Fact(f"metrics.{name}.first", float(join(first for _, first, _ in rows)), "metrics")
        yield from _by_label(name, rows)
        count = grouped.get(name.removesuffix("_sum") + "_count") if name.endswith("_sum") else None
        number = sum(last for _, _, last in count) if count else 0.0
        if number > 0:
            total = sum(last for _, _, last in rows)
            yield Fact(f"metrics.{name.removesuffix('_sum')}.mean", total / number, "metrics")


def _quantiles(name: str, rows: Sequence[tuple[Labels, float, float]]) -> Iterator[Fact]:
    """The bucket edges that half and nearly all of a histogram's values lie below (p50 from above, p99 from below)."""
    counts: dict[float, float] = defaultdict(float)
    for labels, _, last in rows:
        edge = dict(labels).get("le")
        if edge is not None:
            counts[float(edge)] += last
    edges = sorted(counts)
    if len(edges) < 4 or counts[edges[-1]] < _LEAST_VALUES:
        return
    total = counts[edges[-1]]
    half = next(edge for edge in edges if counts[edge] >= 0.5 * total)
    below = [edge for edge in edges if counts[edge] < 0.99 * total]
    if half != float("inf"):
        yield Fact(f"metrics.{name}.p50", half, "metrics")
        yield Fact(f"metrics.{name}.p99", below[-1] if below else 0.0, "metrics")


def _by_label(name: str, rows: Sequence[tuple[Labels, float, float]]) -> Iterator[Fact]:
    values: dict[str, float] = defaultdict(float)
    for labels, _, last in rows:
        for label, value in labels:
            if label not in ("engine", "model", "gpu", "uuid", "pid") and len(value) <= 40:
                values[value] += last
    for value, number in list(values.items())[:_MOST_VALUES]:
        yield Fact(f"metrics.{name}.{value}", number, "metrics")
