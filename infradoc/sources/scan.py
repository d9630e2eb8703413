"""Read only the wanted samples out of a Prometheus text page.

A full parser builds every family of a page (19 ms for one vLLM page); rules look at a fraction of it. A series is
written in the same bytes at every scrape, so its text before the value is looked up in a memo and only the number is
parsed; the careful path runs once per series, and for lines with a timestamp or an exemplar.

Accepts the text format 0.0.4 and OpenMetrics (`# EOF`, exemplars, timestamps). Lines that are neither are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")
Labels = dict[str, str]

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"[ \t]*(,|(?=\}))')
_ESCAPE = re.compile(r'\\([\\"n])')
_REST = re.compile(rb"[ \t]*(\S+)(?:[ \t]+[-+0-9.eE]+)?[ \t]*(?:#.*)?\Z")
_BLANK = b" \t\r"

# A page may hold a new series in every line (request ids as labels): the memo is dropped rather than grown for ever.
MEMO_LIMIT = 50_000

_IGNORED = object()


@dataclass(slots=True)
class ScanResult(Generic[Key]):
    """`samples` in page order; `garbage` lines that are no samples; `complete` is True after an OpenMetrics `# EOF`."""

    samples: list[tuple[Key, float]]
    lines: int = 0
    garbage: int = 0
    complete: bool = False


class PageScanner(Generic[Key]):
    """Scans pages of one target.

    `wanted` are raw sample names (histograms with their suffixes); `resolve(name, labels)` turns a wanted series into
    the caller's key, or None to leave it out, and is called once per series while the memo lasts.
    """

    def __init__(self, wanted: Iterable[str], resolve: Callable[[str, Labels], Key | None]) -> None:
        self._wanted = frozenset(name.encode() for name in wanted)
        self._resolve = resolve
        self._memo: dict[bytes, object] = {}

    def scan(self, page: bytes) -> ScanResult[Key]:
        """The wanted samples of one page. Never raises on content: a line that cannot be read is counted."""
        samples: list[tuple[Key, float]] = []
        result: ScanResult[Key] = ScanResult(samples)
        memo, ignored, append = self._memo, _IGNORED, samples.append
        if len(memo) > MEMO_LIMIT:
            memo.clear()
        lines = page.split(b"\n")
        for line in lines:
            head, _, tail = line.rpartition(b" ")
            key = memo.get(head)
            if key is ignored:
                continue
            if key is not None and b"_" not in tail:
                try:
                    append((key, float(tail)))  # type: ignore[arg-type]
                    continue
                except ValueError:
                    pass
            if line[:1] == b"#" or not line:
                result.complete = result.complete or line.rstrip(_BLANK) == b"# EOF"
                continue
            self._scan_line(line, head, result)
        result.lines = len(lines)
        return result

    def _scan_line(self, line: bytes, head: bytes, result: ScanResult[Key]) -> None:
        text = line.strip(_BLANK)
        if not text or text.startswith(b"#"):
            return
        if text.startswith(b"{"):  # a quoted UTF-8 name: no engine's metric is written so
            return
        name = _NAME.match(text)
        if name is None:
            result.garbage += 1
            return
        if name.group() not in self._wanted:
            self._ignore(text, name.end(), head, result)
            return
        parsed = parse_series(text, name.end())
        if parsed is None:
            result.garbage += 1
            return
        labels, value, end = parsed
        key = self._resolve(name.group().decode(), labels)
        if key is not None:
            result.samples.append((key, value))
        if text[:end] == head:
            self._memo[head] = _IGNORED if key is None else key

    def _ignore(self, text: bytes, end: int, head: bytes, result: ScanResult[Key]) -> None:
        # Labels of unwanted series are not parsed. A head that ends the name or its braces is a whole series text.
        if text[end : end + 1] not in (b"{", b" ", b"\t"):
            result.garbage += 1
        elif text.startswith(head) and (len(head) == end or head.endswith(b"}")):
            self._memo[head] = _IGNORED


def parse_series(text: bytes, start: int) -> tuple[Labels, float, int] | None:
    """Labels, value and the end of the series text of a sample line whose name ends at `start`; None if malformed."""
    labels: Labels = {}
    end = start
    rest = text[start:].lstrip(_BLANK)
    if rest.startswith(b"{"):
        at = len(text) - len(rest) + 1
        while True:
            pair = _LABEL.match(text, at)
            if pair is None:
                break
            labels[pair.group(1).decode()] = unescape(pair.group(2))
            at = pair.end()
        while text[at : at + 1] in (b" ", b"\t"):
            at += 1
        if text[at : at + 1] != b"}":
            return None
        end = at + 1
    tail = _REST.match(text, end)
    if tail is None or b"_" in tail.group(1):
        return None
    if end == start and tail.start(1) == start:  # no labels and nothing between name and value
        return None
    try:
        return labels, float(tail.group(1)), end
    except ValueError:
        return None


def unescape(raw: bytes) -> str:
    """A label value as written between quotes, with its three escapes resolved."""
    text = raw.decode("utf-8", errors="replace")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found.group(1) == "n" else found.group(1), text)
