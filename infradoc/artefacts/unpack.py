"""Unpacking of what is not trusted: bounded, in memory or an unnamed temporary file, never under a name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

from infradoc.artefacts import magic

MAX_UNPACKED = 4 << 30  # bytes that one packed thing may unpack to
MAX_RATIO = 200  # a log packs 20 to 1; beyond FREE_BYTES more than this is a bomb
FREE_BYTES = 64 << 20
_SPOOL = 32 << 20
BROKEN = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
    RuntimeError,
    ValueError,
)


class Bounded:
    """An unpacked stream that ends when it has given too much for its packed size, or where it is damaged."""

    def __init__(self, stream: Any, packed: int) -> None:
        self._stream = stream
        self._limit = min(MAX_UNPACKED, max(FREE_BYTES, packed * MAX_RATIO))
        self._given = 0
        self.stopped = False
        self.broken = ""

    def read(self, size: int = 1 << 20, /) -> bytes:
        """Up to `size` bytes."""
        if self._given >= self._limit:
            self.stopped = self.stopped or bool(self._stream.read(1))
            return b""
        try:
            data = self._stream.read(min(size, self._limit - self._given))
        except BROKEN as error:
            self.broken = " ".join(str(error).split()).rstrip(".")[:120] or type(error).__name__
            return b""
        self._given += len(data)
        return bytes(data)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def seekable(handle: Any, head: bytes) -> IO[bytes]:
    """The whole stream from its beginning, on the disk where it cannot be wound back (an unnamed temporary file)."""
    if isinstance(handle, io.BufferedReader) and handle.seekable():
        handle.seek(0)
        return handle
    spool: Any = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115  (closed by the caller's `with`)
    spool.write(head)
    total = len(head)
    while chunk := handle.read(1 << 20):
        total += len(chunk)
        if total > MAX_UNPACKED:
            raise ValueError(f"it is larger than {MAX_UNPACKED >> 30} GiB")
        spool.write(chunk)
    spool.seek(0)
    return spool  # type: ignore[no-any-return]


def unpacker(packing: magic.Packing) -> Callable[[IO[bytes]], Any] | None:
    if packing == "gzip":
        return lambda raw: gzip.GzipFile(fileobj=raw, mode="rb")
    if packing == "xz":
        return lambda raw: lzma.LZMAFile(raw)
    if packing == "bzip2":
        return lambda raw: bz2.BZ2File(raw)
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # Python 3.14
    except ImportError:
        return None
    return lambda raw: zstd.ZstdFile(raw)
