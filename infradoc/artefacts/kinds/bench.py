"""Results of load generators: vLLM's and SGLang's serving benchmark (text and JSON), genai-perf, guidellm, and the
tables that people make of them. One `bench_result` for each run that is told apart."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infradoc.artefacts.kinds.bench_names import field_of, plain
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.sound import is_sound
from infradoc.artefacts.spans import Span, json_spans
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_BANNER = lazy(r"^=+ ?(?:Serving Benchmark Result|.*Benchmark Result.*) ?=+$", re.IGNORECASE)
_RULE = lazy(r"^[=\-─━┄╌+┏┡└┗╇╈╋┃│|┳┓┩┬┴┼├┤┘┐┌┛┻┠┨┯┷]{10,}$")
_SECTION = lazy(r"^-{3,} ?([^-].*?[^-]) ?-{3,}$")
_PAIR = lazy(
    r"^(?P<name>[A-Za-z][\w /().%\-]{1,60}?)(?::\s*|\s{2,}|\t+|\s*=\s*)~?(?P<value>-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<unit> ?(?:ms|s|%)|/\d+)?\s*$"
)
_BARS = lazy(r"[│┃|]")
_NUMBER = lazy(r"^~?(?P<number>-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?P<unit>ms|s|%|k)?$")
_CONCURRENCY = lazy(r"(?:max[_ -]?)?concurren(?:cy|t)[ =:]+(\d+)|(\d+) concurrent")
_TOKENS = lazy(r"~?([\d.]+)(k?) (prompt|input|output) tokens")
_GAPS = lazy(r"(?i)^(?:t|t_s|time|time_s)\s+(?:gap|itl|inter_token\w*)(?:_(ms|s))?$")


class BenchKind:
    """What a client measured."""

    name = "bench"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Blocks between banners, JSON results, tables with known columns, and runs of known names with values."""
        claims: list[Span] = []
        if any("ttft" in line or "throughput" in line for line in lines):
            claims += json_spans(lines, lambda value: isinstance(value, dict) and len(_from_json(value)) >= 3)
        index = 0
        taken = {at for start, end in claims for at in range(start, end)}
        while index < len(lines):
            end = index if index in taken else _block_end(lines, index)
            if end > index:
                said = (
                    index > 0
                    and index - 1 not in taken
                    and lines[index - 1].startswith("#")
                    and _said(lines[index - 1])
                )
                claims.append((index - 1 if said else index, end))
            index = max(end, index + 1)
        return sorted(claims)

    def read(self, segment: Segment) -> Artefact:
        """The runs in the order in which they stand."""
        out = Artefact()
        for place, fields in _runs(segment.lines):
            known = {name: value for name, value in fields.items() if value is not None}
            text = segment.lines[place].strip()[:300]
            out.events.append(Event("bench_result", 0, known, source=segment.place(place), text=text))
        return out


def _block_end(lines: Sequence[str], start: int) -> int:
    """The line after a block of results that begins on `start`; `start` where none does."""
    line = lines[start]
    if _BANNER.match(line.strip()):
        for end in range(start + 1, min(len(lines), start + 80)):
            if re.match(r"^=+$", lines[end].strip()):
                return end + 1
        return min(len(lines), start + 80)
    if _bar_cells(line) is not None and _bar_result(_bar_cells(line) or []):
        end = start
        while end < len(lines) and (_bar_cells(lines[end]) or _RULE.match(lines[end].strip())):
            end += 1
        return end
    if _GAPS.match(line.strip()) or _columns(line) is not None:
        return _table_end(lines, start)
    end, hits = start, 0
    while end < len(lines) and lines[end].strip() and (_pairs(lines[end]) or _section(lines[end])):
        hits += sum(1 for name, _ in _pairs(lines[end]) if _telling(name))
        end += 1
    return end if hits >= 2 else start


def _telling(name: str) -> bool:
    """A name that only a benchmark prints."""
    found = field_of(name)
    return found is not None and found[0] not in ("requests", "failed", "seconds", "concurrency", "latency_mean")


def _table_end(lines: Sequence[str], start: int) -> int:
    width = len(lines[start].split())
    end = start + 1
    while end < len(lines):
        words = lines[end].split()
        comment = lines[end].startswith("#") and end + 1 < len(lines)
        if not comment and (len(words) != width or not any(_value(word) is not None for word in words)):
            break
        end += 1
    return end if end > start + 1 else start


def _columns(line: str) -> list[tuple[str, float] | None] | None:
    """The fields that the columns of a table stand for; None when the line is no header of results."""
    words = line.split()
    if not 2 <= len(words) <= 20 or any(_NUMBER.match(word) for word in words):
        return None
    found = [field_of(word) for word in words]
    rated = sum(1 for one in found if one is not None and one[0] not in ("requests", "failed", "concurrency"))
    return found if rated >= 2 and "_" in line else None


def _bar_cells(line: str) -> list[str] | None:
    """The cells of a table drawn with bars."""
    if not line.strip()[:1] or line.strip()[0] not in "│┃|":
        return None
    cells = [cell.strip() for cell in _BARS.split(line.strip())[1:]]
    return cells[:-1] if cells and not cells[-1] else cells


def _bar_result(cells: Sequence[str]) -> bool:
    return bool(cells) and (
        (cells[0] in ("Statistic", "Metric") and "Cur Usage" not in cells)  # that is torch's table of its memory
        or (field_of(cells[0] + " avg") is not None and len(cells) > 2)
    )


def _section(line: str) -> str | None:
    found = _SECTION.match(line.strip())
    return found[1] if found else None


def _pairs(line: str) -> list[tuple[str, float]]:
    """Names with values: one on the line, or several as "ttft_p50_s 15.0  total_tok_s 250000"."""
    text = line.strip()
    if text.startswith("#"):
        return []
    single = _PAIR.match(text)
    if single is not None:
        return [(single["name"] + (single["unit"] or "").replace("/", " of "), _float(single["value"]))]
    words = text.split()
    if len(words) < 4 or len(words) % 2:
        return []
    named = list(zip(words[::2], words[1::2], strict=True))
    values = [_value(value) for _, value in named]
    if any(value is None for value in values) or any(not name[0].isalpha() for name, _ in named):
        return []
    return [(name, value) for (name, _), value in zip(named, values, strict=True) if value is not None]


def _runs(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Value | None]]]:
    text = "\n".join(lines)
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield 0, _finished(_from_json(value))
            return
    first = next((index for index, line in enumerate(lines) if not line.startswith("#")), 0)
    if _GAPS.match(lines[first].strip()):
        yield from _gaps(lines)
        return
    if _columns(lines[first]) is not None:
        yield from _rows(lines, first)
        return
    yield from _listed(lines)


def _listed(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Value | None]]]:
    """Names with values below one another; a name that comes again begins the next run."""
    fields: dict[str, float] = {}
    heading, columns, first = "", [""], 0
    for index, line in enumerate(lines):
        if _BANNER.match(line.strip()) and fields:
            yield first, _finished(fields)
            fields, first, heading = {}, index, ""
        heading = _section(line) or heading
        cells = _bar_cells(line)
        if cells is not None:
            columns = cells if cells and cells[0] in ("Statistic", "Metric") else columns
            for name, cell in zip(columns[1:], cells[1:], strict=False):
                value = _value(cell.replace(",", ""))
                if value is not None:
                    _put(fields, f"{cells[0]} {name}", value)
            continue
        for name, value in _pairs(line):
            found = field_of(name, heading)
            if found is not None and found[0] in fields and found[0].startswith("concurrency"):
                yield first, _finished(fields)
                fields, first = {}, index
            _put(fields, name, value, heading)
    if fields:
        yield first, _finished(fields)


def _put(fields: dict[str, float], name: str, value: float, heading: str = "") -> None:
    found = field_of(name, heading)
    if found is not None:
        fields.setdefault(found[0], value * found[1])


def _rows(lines: Sequence[str], first: int) -> Iterator[tuple[int, dict[str, Value | None]]]:
    columns = _columns(lines[first]) or []
    names = lines[first].split()
    common = _said(lines[first - 1]) if first else {}
    for index, line in enumerate(lines[first + 1 :], start=first + 1):
        if line.startswith("#"):
            common = _said(line)
            continue
        fields = dict(common)
        label = ""
        for column, name, word in zip(columns, names, line.split(), strict=False):
            value = _value(word)
            if column is not None and value is not None:
                fields[column[0]] = value * column[1]
            elif value is None and word not in ("-", "n/a"):
                label = f"{label} {word}".strip()
            elif value is not None and plain(name) in ("bs", "batch", "n", "streams"):
                fields.setdefault("concurrency", value)
        yield index, _finished(fields) | {"label": label[:100] or None}


def _said(line: str) -> dict[str, float]:
    """What a comment says of the load."""
    out: dict[str, float] = {}
    found = _CONCURRENCY.search(line.lower())
    if found is not None:
        out["concurrency"] = float(found[1] or found[2])
    for number, kilo, which in _TOKENS.findall(line.lower()):
        out["output_tokens" if which == "output" else "prompt_tokens"] = float(number) * (1000 if kilo else 1)
    return out


def _gaps(lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Value | None]]]:
    """Gaps between tokens of one stream: the longest against the median."""
    found = next((match for line in lines if (match := _GAPS.match(line.strip()))), None)
    factor = 1e-3 if found is not None and found[1] == "ms" else 1.0
    rows = [(index, value) for index, line in enumerate(lines) if (value := _value(line.split()[-1])) is not None]
    gaps = [value * factor for _, value in rows]
    if gaps:
        worst = max(rows, key=lambda row: row[1])[0]
        yield worst, {"itl_median": statistics.median(gaps), "itl_max": max(gaps), "requests": 1}


def _from_json(value: Mapping[str, Any]) -> dict[str, float]:
    fields: dict[str, float] = {}
    for name, number in value.items():
        if isinstance(number, int | float) and not isinstance(number, bool) and is_sound(number):
            _put(fields, str(name), float(number))
    rate = value.get("request_rate")
    if isinstance(rate, int | float) and is_sound(rate) and "request_throughput" in value:
        fields["offered_rate"] = float(rate)
    return fields


def _finished(fields: Mapping[str, float]) -> dict[str, Value | None]:
    """The fields with means of tokens from their sums; a rate of infinity is none."""
    out: dict[str, Value | None] = {
        name: value for name, value in fields.items() if not name.endswith("_all") and abs(value) < 1e18
    }
    requests = fields.get("requests")
    for name in ("prompt_tokens", "output_tokens"):
        if requests and f"{name}_all" in fields:
            out.setdefault(name, fields[f"{name}_all"] / requests)
    return out


def _value(text: str) -> float | None:
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    factor = {"ms": 1e-3, "%": 0.01, "k": 1e3}.get(found["unit"] or "", 1.0)
    return _float(found["number"]) * factor


def _float(text: str) -> float:
    return float(text.replace(",", ""))
