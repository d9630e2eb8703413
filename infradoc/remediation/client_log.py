"""Follows the client measurements file while somebody else's load writes it."""

from __future__ import annotations

from pathlib import Path

from infradoc.errors import InfradocError
from infradoc.load.record import RequestRecord, from_line
from infradoc.small_file import open_regular

_HINT = "Give the file that `infradoc bench --client-out` writes."
LOOK_BACK_BYTES = 4 * 1024 * 1024  # enough for the minutes before a change; older lines are not needed


class ClientLog:
    """The records of one file, in the order in which requests ended. A missing file is an empty one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[RequestRecord] = []
        self._rest = b""
        self._offset = max(0, self._size() - LOOK_BACK_BYTES)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def records(self) -> list[RequestRecord]:
        """All records so far, with those written since the last call. A file that was cut is read from its start.

        Raises InfradocError for what is there and cannot be read, or is no file.
        """
        if self._size() < self._offset:
            self._offset, self._rest = 0, b""
        try:
            with open_regular(self.path) as handle:
                handle.seek(self._offset)
                data = handle.read()
        except FileNotFoundError:
            return self._records
        except OSError as error:
            raise InfradocError(f"The client file {self.path} cannot be read: {error.strerror}.", _HINT) from error
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = (from_line(line.decode("utf-8", errors="replace")) for line in lines)
        self._records.extend(record for record in found if record is not None)
        return self._records

    def forget(self, before: float) -> None:
        """Drop records that ended before a moment (Unix seconds), so that a long watch stays small."""
        self._records = [record for record in self._records if record.end >= before]
