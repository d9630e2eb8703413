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
from dataclasses import dataclass, field
from typing import IO, Any

from infradoc.artefacts import magic

MAX_UNPACKED = 4 << 30  # bytes that all packed things of one reading may unpack to
MAX_RATIO = 200  # a log packs 20 to 1; beyond FREE_BYTES more than this is a bomb
FREE_BYTES = 64 << 20  # that all of them together may give beyond that ratio
FIRST_BYTES = 64 << 10  # of each are given in any case: what it is can be seen, and named
_SPOOL = 32 << 20
_ZSTD_PIECE = 1 << 10
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


@dataclass
class Budget:
    """What all packed things of one reading, one archive or a folder of them, may still unpack to."""

    left: int = field(default_factory=lambda: MAX_UNPACKED)  # bytes in all
    free: int = field(default_factory=lambda: FREE_BYTES)  # bytes beyond MAX_RATIO


class Bounded:
    """An unpacked stream that ends when it has given too much for its packed size, or where it is damaged."""

    def __init__(
        self,
        stream: Any,
        budget: Budget,
        used: Callable[[], int] | None = None,
        most: int | None = None,
        share: float = 1.0,
    ) -> None:
        """used: how many packed bytes were taken so far, so that a bomb is seen where it begins; None: not packed.

        most: how many bytes are there, where the archive breaks off before its end; share: of what a packed byte is
        itself unpacked from (an archive in an archive), so that two ratios do not multiply.
        """
        self._stream = stream
        self._budget = budget
        self._used = used
        self._share = share
        self._most = most
        self._given = 0
        self._beyond = 0  # bytes given beyond the ratio, and taken off the budget
        self.stopped = False
        self.broken = ""

    def read(self, size: int = 1 << 20, /) -> bytes:
        """Up to `size` bytes."""
        wanted = size if self._most is None else min(size, self._most - self._given)
        if self._used is not None:
            wanted = min(wanted, self._budget.left, self._room())
        if wanted <= 0:
            self.stopped = self.stopped or (self._given != self._most and bool(self._peek()))
            return b""
        pieces: list[bytes] = []
        take = getattr(self._stream, "read1", self._stream.read)  # what comes before a damage, not only all or nothing
        while wanted > 0 and not self.broken:
            try:
                data = take(wanted)
            except BROKEN as error:
                self.broken = " ".join(str(error).split()).rstrip(".")[:120] or type(error).__name__
                break
            if not data:
                break
            pieces.append(bytes(data))
            wanted -= len(data)
        out = b"".join(pieces)
        self._given += len(out)
        if self._used is not None:
            self._charge(len(out))
        return out

    def _peek(self) -> bytes:
        try:
            return bytes(self._stream.read(1))
        except BROKEN:  # what would come is not read in any case
            return b""

    def _fair(self) -> int:
        """Bytes that the packed ones taken so far stand for at the ratio."""
        used = self._used() if self._used is not None else 0
        return max(FIRST_BYTES, int(MAX_RATIO * used * self._share))

    def _room(self) -> int:
        """Bytes that may be given before what was taken is looked at again."""
        return max(0, self._fair() + self._beyond - self._given) + self._budget.free

    def _charge(self, count: int) -> None:
        """Take what was given off the budget, and what went beyond the ratio off the bytes that are free."""
        self._budget.left -= count
        beyond = max(self._beyond, self._given - self._fair())
        self._budget.free = max(0, self._budget.free - (beyond - self._beyond))
        self._beyond = beyond

    @property
    def share(self) -> float:
        """How many bytes of the outermost packed thing stand for a byte of this, at most one."""
        if self._used is None or not self._given:
            return self._share
        return min(1.0, self._used() / self._given) * self._share

    @property
    def given(self) -> int:
        """Bytes that were read."""
        return self._given

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
    return _zstd()


def _zstd() -> Callable[[IO[bytes]], Any] | None:
    """Python's own from 3.14 on, else the zstandard package where somebody installed it; None where neither is."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        pass
    else:
        return lambda raw: zstd.ZstdFile(raw)
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return lambda raw: _ZstdStream(zstandard, raw)


class _ZstdStream:
    """A file of zstandard frames; raises EOFError for a damaged one and for one that ends in the middle of a frame."""

    def __init__(self, package: Any, raw: IO[bytes]) -> None:
        self._package = package
        self._raw = raw
        self._frame: Any = None
        self._packed = b""
        self._held = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes."""
        while not self._held:
            # A block of four bytes may stand for 128 KiB, so little is handed over at once.
            self._packed = self._packed or self._raw.read(_ZSTD_PIECE)
            if not self._packed and self._frame is not None:
                raise EOFError("it ends in the middle of a frame")
            if not self._packed:
                return b""
            self._unpack()
        out, self._held = self._held[:size], self._held[size:]
        return out

    def _unpack(self) -> None:
        self._frame = self._frame or self._package.ZstdDecompressor().decompressobj()
        try:
            self._held = self._frame.decompress(self._packed)
        except self._package.ZstdError as error:
            raise EOFError(str(error)) from error
        self._packed = self._frame.unused_data if self._frame.eof else b""
        self._frame = None if self._frame.eof else self._frame

    def close(self) -> None:
        """Close the packed file."""
        self._raw.close()
