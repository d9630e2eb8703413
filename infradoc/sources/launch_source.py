"""The launch command of a live server: from a file, or from the process that listens on its port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infradoc.model import Reading
from infradoc.sources.launch import launch_facts, redact, split_command


class LaunchSource:
    """Looks once; a command line does not change while its process lives."""

    name = "launch"
    interval = float("inf")
    provides: frozenset[str] = frozenset()

    def __init__(self, path: Path | None = None, process: Callable[[], list[str]] | None = None) -> None:
        self._path = path
        self._process = process
        self.command = ""

    def is_supported(self) -> bool:
        """Whether there is a file or a process to look at."""
        return self._path is not None or self._process is not None

    def read(self, now: float) -> Reading:
        """Facts of the command; `command` keeps it with its secrets taken out."""
        if self._path is not None:
            try:
                text = self._path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                return Reading(self.name, now, error=f"The launch file {self._path} cannot be read: {error.strerror}.")
            self.command = redact(split_command(text))
        elif self._process is not None:
            self.command = redact(self._process())
        source = str(self._path) if self._path else "command line"
        return Reading(self.name, now, facts=launch_facts(self.command, source) if self.command else [])

    def close(self) -> None:
        """Nothing is held open."""
