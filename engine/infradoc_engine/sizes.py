"""Sizes as people say them: 98.4 MiB rather than 103178240."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
_MIB = 1 << 20


def size_text(num_bytes: int) -> str:
    """`12 bytes`, `98.4 MiB`, `8 MiB`: one decimal where it is not whole."""
    if num_bytes < 1024:
        return f"{num_bytes} byte{'' if num_bytes == 1 else 's'}"
    size, power = num_bytes / 1024, 0
    while size >= 1023.95 and power < len(_UNITS) - 1:  # above it the rounded figure would be 1024
        size, power = size / 1024, power + 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[power]}"


def up_to_mib(num_bytes: int) -> int:
    """The next whole MiB, in bytes: what is offered as a setting need not be exact to the byte."""
    return -(-num_bytes // _MIB) * _MIB


def size_value(num_bytes: int) -> str:
    """A size as a flag takes it: `312MiB` where it is whole, else the number of bytes."""
    return str(num_bytes) if num_bytes % _MIB or not num_bytes else f"{num_bytes // _MIB}MiB"
