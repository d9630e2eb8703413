"""Sizes: their units, and how they are written in every text."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def size_text(count: float, digits: int = 1) -> str:
    """Bytes for a reader: GiB with `digits` places, below one GiB whole MiB, below one MiB bytes."""
    if abs(count) >= GIB:
        return f"{count / GIB:.{digits}f} GiB"
    return f"{count / MIB:.0f} MiB" if abs(count) >= MIB else f"{count:.0f} B"
