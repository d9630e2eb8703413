"""A lazy pattern behaves as the compiled one, and is compiled when first asked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.lazy_pattern import lazy

TEXTS = (r"(?P<n>\d+) ([KMG])iB", r"\bfree\b", r"^a*b$")


@given(st.sampled_from(TEXTS), st.text(alphabet="0123456789 KMGiBfreab\n", max_size=40))
def test_it_is_the_same_pattern(text: str, line: str) -> None:
    made, real = lazy(text, re.IGNORECASE), re.compile(text, re.IGNORECASE)
    assert [found.span() for found in made.finditer(line)] == [found.span() for found in real.finditer(line)]
    assert (made.search(line) is None) == (real.search(line) is None)
    assert made.findall(line) == real.findall(line) and made.split(line) == real.split(line)
    assert made.sub("x", line) == real.sub("x", line)
    assert (made.pattern, made.groups, made.flags) == (real.pattern, real.groups, real.flags)


def test_a_fault_is_told_at_first_use() -> None:
    broken = lazy("(")
    with pytest.raises(re.error):
        broken.search("x")
