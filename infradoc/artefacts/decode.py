"""Bytes to lines: encodings, line ends, lines without an end, files with holes."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import IO, Protocol

from infradoc.artefacts.dense import Runs, Thinned

CHUNK = 1 << 20
LINE_LIMIT = 1 << 20  # characters of a line that are kept; a log that was never ended by "\n" must not fill the memory
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HOLE = 64 << 20  # a file with fewer blocks than bytes by this much is read from data to data


class Readable(Protocol):
    """What bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; empty at the end."""


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding that the first bytes speak for, and how many bytes its mark takes.

    Without a mark: UTF-16 when every other byte is NUL, UTF-8 when it is valid, else Windows-1252, in which any byte is
    a character.
    """
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[:4096]
    if len(sample) >= 4 and 0 in sample[:64]:  # not where UTF-16 was appended to something else
        even, odd = sample[0::2], sample[1::2]
        if odd.count(0) > 0.7 * len(odd) and even.count(0) < 0.1 * len(even):
            return "utf-16-le", 0
        if even.count(0) > 0.7 * len(even) and odd.count(0) < 0.1 * len(odd):
            return "utf-16-be", 0
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
    except UnicodeDecodeError:
        return ("utf-8", 0) if _mostly_utf8(head) else ("cp1252", 0)
    return "utf-8", 0


def _mostly_utf8(head: bytes) -> bool:
    """A few broken bytes in UTF-8 (two writers at once, a cut paste) are no other encoding."""
    bad = head.decode("utf-8", errors="replace").count("\ufffd")
    high = sum(1 for byte in head if byte >= 0x80)
    return bad * 4 < high


class LineReader:
    """Lines of a stream in batches, with at most LINE_LIMIT characters each. `cut` counts those that were longer.

    Of long runs of blank or very short lines the beginning is given, and of millions of short ones the first;
    `thinned.cut` and `thinned.unread` count the others.
    """

    def __init__(self, stream: Readable, head: bytes = b"", runs: Runs | None = None) -> None:
        name, skip = encoding_of(head)
        self.thinned = Thinned(runs or Runs())
        self.cut = 0
        self.failed = ""  # why the stream broke off
        self.dirty = False  # whether the last batch held characters that a terminal acts on
        self.bytes_read = len(head)
        self._decoder = codecs.getincrementaldecoder(name)("replace")
        self._stream = stream
        self._waiting = head[skip:]
        self._rest = ""
        self._dropping = False
        self._done = False
        self._only_cr: bool | None = None  # lines end in "\r" alone, as old editors and some terminals write them

    def batches(self, size: int = CHUNK) -> Iterator[list[str]]:
        """Batches of whole lines, about `size` bytes each. A stream that breaks off ends; `failed` says why."""
        while not self._done:
            data = self._waiting or self._read(size)
            self.bytes_read += 0 if self._waiting else len(data)
            self._waiting = b""
            self._done = not data
            text = self._decoder.decode(data, final=self._done)
            if self._only_cr is None:
                self._only_cr = "\n" not in text and text.count("\r") >= 2
            if self._only_cr:
                text = text.replace("\r", "\n")
            lines = self._split(text)
            if lines:
                yield lines

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""  # None: nothing there now, and nobody waits for more
        except (OSError, ValueError) as error:
            self.failed = getattr(error, "strerror", None) or str(error)
            return b""

    def _split(self, text: str) -> list[str]:
        if self._dropping:
            _, end, text = text.partition("\n")
            if not end:
                return []
            self._dropping = False
        text = self._rest + text
        if text[:1] == "\n" and text == "\n" * len(text):  # nothing but line ends: no list is made of them
            self._rest = ""
            return [""] * self.thinned.newlines(len(text))
        if self.thinned.whole(text):
            self._rest = text[text.rindex("\n") + 1 :]
            return []
        self.dirty = "\x1b" in text or "\r" in text or "\x00" in text or "\b" in text or "[0m" in text
        lines = text.split("\n")  # not splitlines: a form feed or U+2028 inside a message ends no line
        self._rest = lines.pop()
        if len(self._rest) > LINE_LIMIT:
            lines.append(self._rest[:LINE_LIMIT])
            self.cut += 1
            self._rest, self._dropping = "", not self._done
        if self._done and self._rest:
            lines.append(self._rest)
            self._rest = ""
        if max(map(len, lines), default=0) > LINE_LIMIT:
            lines = [self._capped(line) for line in lines]
        if self.dirty and "\r" in text:
            lines = [line[:-1] if line.endswith("\r") else line for line in lines]
        return self.thinned.lines(lines, len(text))

    def _capped(self, line: str) -> str:
        if len(line) <= LINE_LIMIT:
            return line
        self.cut += 1
        return line[:LINE_LIMIT]


class HoleyFile:
    """A file read from data to data: the holes of a sparse file (a log truncated under its writer) are skipped."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._fd = handle.fileno()
        self._size = os.fstat(self._fd).st_size
        self._at = 0
        self._until = 0

    @staticmethod
    def wanted(handle: IO[bytes]) -> bool:
        """Whether the file is mostly holes."""
        seen = os.fstat(handle.fileno())
        return hasattr(os, "SEEK_DATA") and seen.st_size - 512 * getattr(seen, "st_blocks", 1 << 62) > _HOLE

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes of data; empty behind the last."""
        if self._at >= self._until and not self._next():
            return b""
        data = os.pread(self._fd, min(size, self._until - self._at), self._at)
        self._at += len(data)
        return data

    def _next(self) -> bool:
        try:
            self._at = os.lseek(self._fd, self._at, os.SEEK_DATA)
            self._until = min(os.lseek(self._fd, self._at, os.SEEK_HOLE), self._size)
        except OSError:  # ENXIO: no data behind this place
            return False
        return self._until > self._at
