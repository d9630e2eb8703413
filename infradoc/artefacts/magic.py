"""What a file is by its first bytes, as far as it is no text."""

from __future__ import annotations

import re
from typing import Literal

Packing = Literal["gzip", "xz", "bzip2", "zstd", "zip", "tar"]

HEAD = 64 * 1024
_NULS = re.compile(rb"\x00{16,}")
_WIDE = re.compile(rb"([\t\n\r\x1b -~])\x00{1,3}")
_PACKED: tuple[tuple[bytes, Packing], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
)
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_DOCUMENTS = (
    (b"%PDF", "a PDF document"),
    (b"\xd0\xcf\x11\xe0", "an Office document"),
)
RTF = b"{\\rtf"  # a document, but one whose text is written out
# An Office document is a zip of XML, in which every sentence is in pieces.
_OFFICE = (b"[Content_Types].xml", b"mimetypeapplication/vnd.oasis", b"_rels/.rels", b"word/", b"docProps/")
_OTHERS = (
    (b"\x7fELF", "a program"),
    (b"GGUF", "a GGUF model"),
    (b"SQLite format 3", "a database"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x93NUMPY", "a NumPy array"),
)


def packing_of(head: bytes) -> Packing | None:
    """How a file is packed; None when it is not."""
    if head[257:262] == b"ustar":
        return "tar"
    return next((name for mark, name in _PACKED if head.startswith(mark)), None)


def is_image(head: bytes) -> bool:
    """Whether a file is a picture: a screenshot, mostly."""
    if head[:2] == b"BM":  # two letters begin many a text
        return b"\x00" in head[:64]
    return head.startswith(_IMAGES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or head[4:8] == b"ftyp"


def document_kind(head: bytes) -> str | None:
    """What document a file is, in words; None when it is none."""
    if head.startswith(b"PK\x03\x04") and head[30:].startswith(_OFFICE):  # behind 30 bytes comes the first name
        return "an Office document"
    return next((name for mark, name in _DOCUMENTS if head.startswith(mark)), None)


def binary_kind(head: bytes) -> str | None:
    """What binary thing a file is, in words; None for text in any encoding."""
    known = next((name for mark, name in _OTHERS if head.startswith(mark)), None)
    if known:
        return known
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _utf16(head[:8192]):
        return None
    # A log truncated under its writer, or copied with its holes, has NULs in runs; PowerShell's `>>` appends UTF-16 to
    # a file in UTF-8, so that every other byte is NUL from some place on.
    sample = _WIDE.sub(rb"\1", _NULS.sub(b"", head))[:8192]
    if not sample:
        return "nothing but NUL bytes" if head else None
    odd = sum(1 for byte in sample if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    return "binary data" if odd > 0.1 * len(sample) else None


def _utf16(sample: bytes) -> bool:
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    return (odd > 0.7 * half and even < 0.1 * half) or (even > 0.7 * half and odd < 0.1 * half)
