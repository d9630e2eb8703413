from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.load.text import document, prompt, words


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 30_000))
def test_a_document_has_the_bytes_asked_for_and_is_repeatable(seed: int, index: int, size: int) -> None:
    text = document(seed, index, size)
    assert len(text.encode()) == size
    assert text == document(seed, index, size)


def test_documents_differ_by_index_and_seed() -> None:
    assert len({document(seed, index, 2000) for seed in (1, 2) for index in range(20)}) == 40


def test_prompts_have_their_number_of_words_and_differ() -> None:
    prompts = [prompt(1, "chat", index, 24) for index in range(50)]
    assert {len(text.split()) for text in prompts} == {24}
    assert len(set(prompts)) == 50
    assert prompts[0] != prompt(1, "other", 0, 24)


def test_a_shared_start_is_shared_and_the_rest_is_not() -> None:
    texts = [prompt(1, "chat", index, 24, 16).split() for index in range(20)]
    assert {len(text) for text in texts} == {24}
    assert len({tuple(text[:16]) for text in texts}) == 1
    assert len({tuple(text[16:]) for text in texts}) == 20


def test_texts_do_not_depend_on_the_process() -> None:
    code = "from infradoc.load.text import *; print(prompt(3, 'c', 9, 30)); print(document(3, 9, 900))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].decode().startswith(prompt(3, "c", 9, 30))


def test_plain_words_are_plain() -> None:
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words()["plain"])
