"""Lines that end at a column because a viewer or a terminal showed no more: what stood behind it is gone.

Said of a text only where nothing else explains its lengths: none goes beyond the column, and the lines that reach it
are different ones, break off alike, or stand at the width of a terminal with a bracket or a word left open. What is
left of a number is taken away, for one that lost its last digits is another number; "…" stands for it, and tells the
events of such lines from those of whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infradoc.artefacts.model import Segment
from infradoc.artefacts.unwrap import NARROWEST, begins
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event
from infradoc_rules.patterns.prefix import take_off
from infradoc_rules.patterns.sizes import number_of
from infradoc_rules.values import number

MARK = "\u2026"
_MARKS = ("...", MARK, ">")  # an editor's, a web page's, `less -S`
_WIDEST = 1_000
_LOOK = 2_000  # lines that tell
_USUAL = frozenset({80, 100, 120, 132, 140, 150, 160, 180, 200, 220, 240, 250, 256, 300, 400, 500})
# Rows of a table are of one width by design: bars, rules, columns.
_ROW = lazy(r"[|+│├└╔═╭]|\W{4}|(.)\1{7}|\s*\S+(?: \S+)*(?: {2,}\S+(?: \S+)*){3,}$")
_SHAPE = lazy(r"[\d.]+")
_OPEN = lazy(r"[^\W\d]$|[/(\[{:=<\\-]$")  # not a number: many a log's lines end in one
_LISTED = lazy(r",$")  # SGLang's own lines end so, all of one form
_CUT_SAMPLE = lazy(r"[a-z]\w*:?\w{2,120}(?<!_info)\{\w+=")
# A message of PyTorch and one of vLLM that never end before what is looked for here.
_UNTOLD = lazy(
    r"Tried to allocate (?!.*(?:unallocated|reserved in total|See documentation))"
    r"|Avg prompt throughput: (?!.*KV cache usage: [\d.]+%)"
)
_SETTINGS = lazy(r"config: |[Aa]rgs\w*[:=]|Namespace\(|ServerArgs\(|Args \{")
_DTYPE = lazy(r"\bdtype=[\w.']+,? ?")  # of quantized weights it is that of the sums, and quantization is told behind it
_HELD = lazy(r"has ([\d.]+ (?:[KMGT]i?B|bytes)) memory in use")
_DIFFERENT = 3  # lines that show a width which no terminal has
_ALIKE = 3  # lines of one form that show one
_SEEN = 24  # characters that tell one line from another
_ACCOUNTED = 0.95  # of a device: no other process holds what is left
_LARGE = 0.04  # of a device: more than what fragmentation leaves in pieces


@dataclass(frozen=True, slots=True)
class Cut:
    """The column at which lines end: of the text as it was given, or as it is without what was put in front of it."""

    width: int
    given: bool

    def lengths(self, given: Sequence[str], lines: Sequence[str]) -> list[int]:
        """The length of each line; `given` are the same lines as they stood."""
        return _lengths(given, lines) if self.given else [len(line) for line in lines]

    def telling(self, given: Sequence[str], lines: Sequence[str]) -> bool:
        """Whether something other than settings was cut off."""
        pairs = zip(self.lengths(given, lines), lines, strict=True)
        return any(self.width - 1 <= length <= self.width and not _SETTINGS.search(line) for length, line in pairs)

    def marked(self, given: Sequence[str], lines: Sequence[str]) -> list[str]:
        """The lines, those that reach the column without a number or a flag that may have gone on."""
        pairs = zip(self.lengths(given, lines), lines, strict=True)
        return [_marked(line, self.width - length) if length >= self.width - 1 else line for length, line in pairs]


def cut_of(given: Sequence[str], lines: Sequence[str]) -> Cut | None:
    """Where lines were cut off; None where they are whole, or may be. `given` are the same lines as they stood."""
    given, lines = given[:_LOOK], lines[:_LOOK]
    for as_given in (False, True):
        lengths = _lengths(given, lines) if as_given else [len(line) for line in lines]
        width = _column(lines, lengths)
        if width is not None:
            return Cut(width, as_given)
    return None


def _lengths(given: Sequence[str], lines: Sequence[str]) -> list[int]:
    """As they stood; lines that were put together of several are as long as they are now."""
    return [max(len(was.rstrip()), len(line)) if line else 0 for was, line in zip(given, lines, strict=True)]


def _column(lines: Sequence[str], lengths: Sequence[int]) -> int | None:
    longest = max(lengths, default=0)
    if not NARROWEST <= longest <= _WIDEST:
        return None
    usual = longest in _USUAL or longest + 1 in _USUAL  # a blank in the last column is not copied
    least = longest - (longest in _USUAL)
    places = [place for place, length in enumerate(lengths) if length >= least and not _ROW.match(lines[place])]
    at = [lines[place] for place in places]
    if not at or 2 * sum(_goes_on(lines, place) for place in places) > len(at):
        return None
    shapes = {_SHAPE.sub("0", take_off(line).message)[:_SEEN] for line in at}
    if _marked_alike(at):
        return longest if len(shapes) > 1 or longest in _USUAL else None
    if any("}" not in line and _CUT_SAMPLE.match(line) for line in at):
        return longest
    left_open = [line for line in at if _is_open(line) or (len(shapes) > 1 and _LISTED.search(line))]
    if 2 * len(left_open) < len(at):
        return None
    if not usual:
        near = sum(longest - 4 <= length <= longest - 2 for length in lengths)
        return longest if len(shapes) >= _DIFFERENT and near < len(at) else None
    if len(shapes) > 1 or len(left_open) == len(at) >= _ALIKE:
        return longest
    return longest if any(_is_broken(line) for line in left_open) else None


def _goes_on(lines: Sequence[str], place: int) -> bool:
    """Whether the line below is the rest of this one: it was broken, not cut off."""
    below = lines[place + 1] if place + 1 < len(lines) else ""
    return bool(below) and not below.startswith(" ") and not begins(below, lines[place])


def _marked_alike(at: Sequence[str]) -> bool:
    """Whether all end in the mark that a viewer puts where it left something out."""
    return any(all(line.endswith(mark) and line[-9:-3].strip(".") for line in at) for mark in _MARKS)


def _is_open(line: str) -> bool:
    """Whether a line ends as if more had followed: in a word, or inside brackets or a quotation."""
    return _OPEN.search(line) is not None or _is_broken(line)


def _is_broken(line: str) -> bool:
    """Whether something in a line was begun and not ended."""
    return sum(map(line.count, "([{")) > sum(map(line.count, ")]}")) or _UNTOLD.search(line) is not None


def _marked(line: str, short: int) -> str:
    """A line that reaches the column (short: by so much less) without what may have gone on."""
    if short < 0 or not line or _ROW.match(line):
        return line
    for mark in _MARKS:
        line = line.removesuffix(mark)
    head, blank, last = line.rpartition(" ")
    if short == 0 and head.strip() and (last.startswith("-") or "=" in last):
        line = f"{head}{blank}"
    if "dtype=" in line and "quantization" not in line:
        line = _DTYPE.sub("", line)
    return f"{line.rstrip('0123456789.') if short == 0 else line}{MARK}"


def is_cut(event: Event) -> bool:
    """Whether an event is one of a line that lost its end."""
    return (event.text or "").endswith(MARK)


def half_told(event: Event) -> bool:
    """Whether an event of a line that lost its end leaves open what decides between causes.

    Of a refused allocation that is who holds the memory and in what pieces, of an engine's periodic line how full the
    KV pool is.
    """
    if not is_cut(event):
        return False
    if event.name == "stats_line":
        return "kv_usage" not in event.fields
    return event.name == "cuda_oom" and "want_bytes" in event.fields and not _accounted(event)


def _accounted(event: Event) -> bool:
    fields = event.fields
    if "allocated_bytes" in fields and ("reserved_unallocated_bytes" in fields or "reserved_bytes" in fields):
        return True
    want, free, total = (number(fields.get(name)) or 0.0 for name in ("want_bytes", "free_bytes", "total_bytes"))
    held = _HELD.findall(str(fields.get("holders") or ""))
    return len(held) == 1 and number_of(held[0]) + free >= _ACCOUNTED * total > 0 and want >= _LARGE * total


def half_shown(segments: Sequence[Segment]) -> bool:
    """Whether of a page of metrics some samples lost their values: those that are left do not add up."""
    return any(
        line.endswith(MARK) and _CUT_SAMPLE.match(line) is not None for segment in segments for line in segment.lines
    )
