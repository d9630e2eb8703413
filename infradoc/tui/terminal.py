"""The terminal may go away (a closed window, a dropped connection) while a fix has to be taken back.

Textual writes from a thread that ends at the first error; then its queue fills up and the screen waits for ever.
"""

from __future__ import annotations

from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver


class Surviving:
    """A stream to the terminal; what is written after it went away is dropped."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.is_gone = False

    def write(self, text: str) -> int:
        """As the stream's, or nothing."""
        if not self.is_gone:
            try:
                return self._stream.write(text)
            except (OSError, ValueError):  # ValueError: it is closed
                self.is_gone = True
        return len(text)

    def flush(self) -> None:
        """As the stream's, or nothing."""
        if not self.is_gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self.is_gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SurvivingDriver(LinuxDriver):
    """Textual's driver, over a terminal that may go away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file: Any = Surviving(self._file)
