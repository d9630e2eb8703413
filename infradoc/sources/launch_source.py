"""The launch command of a live server: from a file, or from the process that listens on its port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infradoc.model import Reading
from infradoc.small_file import read_small
from infradoc.sources.launch import launch_facts, split_command
from infradoc.sources.redact import redact

_RETRY_SECONDS = 5.0


class LaunchSource:
    """Looks until it has seen the command once; that does not change while the process lives."""

    name = "launch"
    provides: frozenset[str] = frozenset()

    def __init__(self, path: Path | None = None, process: Callable[[], list[str]] | None = None) -> None:
        self._path = path
        self._process = process
        self.command = ""

    @property
    def interval(self) -> float:
        """For ever once the command is known; until then the server may still be starting."""
        return float("inf") if self.command else _RETRY_SECONDS

    def is_supported(self) -> bool:
        """Whether there is a file or a process to look at."""
        return self._path is not None or self._process is not None

    def read(self, now: float) -> Reading:
        """Facts of the command; `command` keeps it with its secrets taken out."""
        if self._path is not None:
            try:
                text = read_small(self._path).decode(errors="replace")
            except OSError as error:
                return Reading(self.name, now, error=f"The launch file {self._path} cannot be read: {error.strerror}.")
            self.command = redact(split_command(text))
        elif self._process is not None:
            self.command = redact(self._process())
        source = str(self._path) if self._path else "command line"
        return Reading(self.name, now, facts=launch_facts(self.command, source) if self.command else [])

    def close(self) -> None:
        """Nothing is held open."""
