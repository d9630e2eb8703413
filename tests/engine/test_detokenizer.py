"""Incremental text equals the whole text; characters and stop strings across token borders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_engine.detokenizer import IncrementalDetokenizer


def decode_bytes(ids: Sequence[int]) -> str:
    """The hardest tokenizer there is: a token a byte."""
    return bytes(ids).decode("utf-8", "replace")


def _run(text: str, stop: Sequence[str] = (), prompt: Sequence[int] = ()) -> tuple[list[str], bool]:
    detokenizer = IncrementalDetokenizer(decode_bytes, prompt, stop)
    pieces = []
    for byte in text.encode():
        pieces.append(detokenizer.add(byte))
        if detokenizer.stopped:
            return pieces, True
    pieces.append(detokenizer.finish())
    return pieces, detokenizer.stopped


@given(st.text(), st.text())
def test_pieces_join_to_the_text(text: str, prompt: str) -> None:
    pieces, _ = _run(text, prompt=list(prompt.encode()))
    assert "".join(pieces) == text


@given(st.text(alphabet="abc你", max_size=30), st.lists(st.text(alphabet="abc你", min_size=1, max_size=4), max_size=3))
def test_stop_ends_before_the_first_occurrence(text: str, stop: list[str]) -> None:
    pieces, stopped = _run(text, stop)
    got = "".join(pieces)
    ends = [index + len(s) for s in stop if (index := text.find(s)) >= 0]
    assert stopped == bool(ends)
    assert text.startswith(got)
    assert not any(s in got for s in stop)
    if not ends:
        assert got == text
    else:
        seen = text[: min(ends)]  # what had been generated when the first stop string was complete
        assert any(seen == got + s + seen[len(got) + len(s) :] for s in stop if seen.startswith(got + s))


@pytest.mark.parametrize("text", ["你好", "😀!", "é", "a\u200d👩‍👩‍👧"])
def test_no_piece_holds_half_a_character(text: str) -> None:
    pieces, _ = _run(text)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_cut_character_comes_out_at_the_end() -> None:
    detokenizer = IncrementalDetokenizer(decode_bytes)
    assert detokenizer.add("你".encode()[0]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_text_is_held_only_while_a_stop_may_begin() -> None:
    detokenizer = IncrementalDetokenizer(decode_bytes, (), ["stop"])
    assert [detokenizer.add(byte) for byte in b"a sto"] == ["a", " ", "", "", ""]
    assert detokenizer.add(ord("r")) == "stor"
    assert not detokenizer.stopped
