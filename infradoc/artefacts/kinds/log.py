"""Logs of engines, trainers, libraries and the kernel: everything line by line."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.log_reader import LogReader
from infradoc.artefacts.model import Artefact, Segment
from infradoc_rules.patterns import LogScanner, detect


class LogKind:
    """What no other kind claims is read as a log."""

    name = "log"

    def spans(self, lines: Sequence[str]) -> Sequence[tuple[int, int]]:
        """None: a log is what the other kinds leave."""
        return ()

    def read(self, segment: Segment) -> Artefact:
        """Events of each line; the engine is recognised from its lines."""
        reader = reader_of(segment.source, detect(segment.lines), None)
        reader.scanner.lines = segment.first_line - 1
        reader.feed(segment.lines)
        return reader.artefact()


def reader_of(source: str, system: str | None, year: int | None, before: LogScanner | None = None) -> LogReader:
    """A reader for one log; it goes on in the phase of the part `before`."""
    scanner = LogScanner(system, source, year=year)
    if before is not None:
        scanner.phase, scanner.stamp = before.phase, before.stamp
        scanner.facts = dict(before.facts)
    return LogReader(scanner)
