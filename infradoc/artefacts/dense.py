"""Long runs of blank or very short lines, and millions of short ones: cut before anything looks at them one by one.

20 MB of newlines are twenty million lines, and each costs as much as one that says something: 2 us and 60 bytes. No
log, table or command goes on for thousands of lines of four characters, so what is cut off says nothing; it is counted.
Lines that are a little longer are read, up to so many: a recorder that writes a number a second fills them in weeks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SHORT = 4  # characters
LONGEST_RUN = 20_000  # lines kept of a run; kinds of artefacts see no more of a text either
ALL_RUNS = 200_000  # lines kept of all long runs of all texts of one reading together
DENSE = 16  # characters: lines of fewer in the mean are dense
DENSE_LINES = 4_000_000  # of them that are read of all texts of one reading together
USUAL = 40  # characters: a log's lines have more in the mean
LONG = 1_000  # lines from which on a run is a long one
_SHORT_ONLY = re.compile(rb"\x01*")


@dataclass
class Runs:
    """What the texts of one reading may still hold of such lines. `cut` counts those that were left out of runs."""

    left: int = field(default_factory=lambda: ALL_RUNS)
    dense: int = field(default_factory=lambda: DENSE_LINES)
    cut: int = 0

    def take(self, wanted: int) -> int:
        """How many of `wanted` more lines of a long run are kept."""
        given = min(wanted, self.left)
        self.left -= given
        self.cut += wanted - given
        return given


class Thinned:
    """The lines of one text, batch by batch, without what is too much.

    `cut` counts what was left out of runs, `unread` the dense lines behind the last one that was read.
    """

    def __init__(self, runs: Runs, long: int = LONG, longest: int = LONGEST_RUN) -> None:
        self._runs = runs
        self._long, self._longest = long, longest
        self._long_run = re.compile(rb"\x01{%d,}" % long)
        self._run = 0  # lines of the run that the last batch ended in
        self.cut = 0
        self.unread = 0

    def whole(self, text: str) -> bool:
        """Whether a text of whole lines, which is then counted as unread, is too much as a whole."""
        if self._runs.dense or (count := text.count("\n")) * DENSE <= len(text):
            return False
        self.unread += count
        self._run = 0
        return True

    def newlines(self, count: int) -> int:
        """How many of `count` blank lines in a row are kept, without a list of them all."""
        self._run, before = self._run + count, self._run
        return self._kept(before, count)

    def lines(self, lines: list[str], characters: int = 0) -> list[str]:
        """The lines of a batch that are kept; characters: how many it has, where that is known.

        A batch of lines of usual length is not looked through: that costs a log 3 % and finds a few thousand lines.
        """
        if lines and characters >= USUAL * len(lines):
            self._run = 0
            return lines
        kept = self._without_runs(lines)
        if len(kept) < LONG or sum(map(len, kept)) >= (DENSE - 1) * len(kept):  # an end of a line is one as well
            return kept
        read = min(len(kept), self._runs.dense)
        self._runs.dense -= read
        self.unread += len(kept) - read
        return kept[:read]

    def _without_runs(self, lines: list[str]) -> list[str]:
        mask = _mask(lines)
        begun = _SHORT_ONLY.match(mask)
        first = begun.end() if begun is not None else 0
        if first == len(mask):
            return lines[: self.newlines(len(lines))]
        if first + self._run < self._long and self._long_run.search(mask) is None:
            self._run = _behind(mask)
            return lines
        out = lines[: self._kept(self._run, first)]
        at = first
        for found in self._long_run.finditer(mask, first):
            out += lines[at : found.start() + self._kept(0, found.end() - found.start())]
            at = found.end()
        self._run = _behind(mask)
        return out + lines[at:]

    def _kept(self, before: int, count: int) -> int:
        """How many of `count` short lines are kept that follow `before` others."""
        # A run that never becomes a long one costs nothing of what is left.
        free = min(count, max(0, self._long - before))
        room = max(0, self._longest - max(before, self._long))
        wanted = count - free
        kept = free + self._runs.take(min(wanted, room))
        self._runs.cut += max(0, wanted - room)
        self.cut += count - kept
        return kept


def _mask(lines: list[str]) -> bytes:
    """A byte for each line: 1 where it is short."""
    return bytes(map((SHORT + 1).__gt__, map(len, lines)))


def _behind(mask: bytes) -> int:
    """How many short lines stand at the end."""
    return len(mask) - len(mask.rstrip(b"\x01"))
