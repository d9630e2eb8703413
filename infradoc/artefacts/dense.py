"""Long runs of blank or very short lines: cut to their beginning before anything looks at the lines one by one.

20 MB of newlines are twenty million lines, and each costs as much as one that says something: 2 us and 60 bytes. No
log, table or command goes on for thousands of lines of four characters, so what is cut off says nothing; it is counted.
"""

from __future__ import annotations

import re

SHORT = 4  # characters
LONGEST_RUN = 20_000  # lines kept of a run; kinds of artefacts see no more of a text either
ALL_RUNS = 200_000  # lines kept of all long runs of all texts of one reading together
LONG = 1_000  # lines from which on a run is a long one
_SHORT_ONLY = re.compile(rb"\x01*")


class Runs:
    """What the texts of one reading may still hold of such lines. `cut` counts those that were left out."""

    def __init__(self, kept: int = ALL_RUNS) -> None:
        self.left = kept
        self.cut = 0

    def take(self, wanted: int) -> int:
        """How many of `wanted` more lines of a long run are kept."""
        given = min(wanted, self.left)
        self.left -= given
        self.cut += wanted - given
        return given


class Thinned:
    """The lines of one text, batch by batch, without what is too much of its runs. `cut` counts what was left out."""

    def __init__(self, runs: Runs, long: int = LONG, longest: int = LONGEST_RUN) -> None:
        self._runs = runs
        self._long, self._longest = long, longest
        self._long_run = re.compile(rb"\x01{%d,}" % long)
        self._run = 0  # lines of the run that the last batch ended in
        self.cut = 0

    def newlines(self, count: int) -> int:
        """How many of `count` blank lines in a row are kept, without a list of them all."""
        self._run, before = self._run + count, self._run
        return self._kept(before, count)

    def lines(self, lines: list[str]) -> list[str]:
        """The lines of a batch that are kept."""
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
