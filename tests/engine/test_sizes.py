"""Sizes with their unit, and as a flag takes them back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.config import parse_size
from infradoc_engine.sizes import size_text, size_value, up_to_mib


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (103_178_240, "98.4 MiB"),
        (8 << 30, "8 GiB"),
        (1 << 61, "2 EiB"),
    ],
)
def test_sizes_have_a_unit(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(0, 1 << 50))
def test_what_is_offered_is_what_the_flag_takes(size: int) -> None:
    assert parse_size(size_value(size)) == size
    rounded = up_to_mib(size)
    assert 0 <= rounded - size < 1 << 20 and parse_size(size_value(rounded)) == rounded
