"""Whole new lines of a growing file, across rotation and truncation."""

from __future__ import annotations

from pathlib import Path

MAX_READ_BYTES = 64 << 20
MAX_LINE_BYTES = 4 << 20


class FileTail:
    """Gives each line once. A file that is replaced or cut is read from its start again.

    With `head_bytes` and `tail_bytes` the middle of a long file is left out at the first look.
    """

    def __init__(self, path: Path, head_bytes: int = 0, tail_bytes: int = 0) -> None:
        self._path = path
        self._head, self._end = head_bytes, tail_bytes
        self._offset = 0
        self._inode: int | None = None
        self._rest = b""
        self.dropped_lines = 0

    def lines(self) -> list[bytes]:
        """Lines completed since the last call, without line ends. Raises OSError."""
        stat = self._path.stat()
        if stat.st_ino != self._inode or stat.st_size < self._offset:
            self._inode, self._offset, self._rest = stat.st_ino, 0, b""
        found: list[bytes] = []
        with self._path.open("rb") as handle:
            if self._offset == 0 and self._head and stat.st_size > self._head + self._end:
                found += self._split(handle.read(self._head))
                self._rest = b""
                handle.seek(stat.st_size - self._end)
                handle.readline()  # the rest of a line that began before
            else:
                handle.seek(self._offset)
            found += self._split(handle.read(MAX_READ_BYTES))
            self._offset = handle.tell()
        return found

    def _split(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            self.dropped_lines += 1
        return lines
