"""The tokenizer of the real file against transformers' (rows made by tests/data/make_reference_tokens.py)."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from infradoc_engine.tokenizer import TokenizerHandle
from infradoc_engine.weights import open_model

ROWS = json.loads((Path(__file__).parents[1] / "data" / "reference_tokens.json").read_text())["tokenizer"]


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> TokenizerHandle:
    return TokenizerHandle(open_model(model_path))


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_same_ids_and_text_as_transformers(tokenizer: TokenizerHandle, row: dict) -> None:
    ids = tokenizer.encode(row["text"])
    assert ids == row["ids_declared"]
    assert tokenizer.decode(row["ids"], skip_special=False) == row["decoded"]


def test_declared_digit_rule_differs_only_after_blanks() -> None:
    """Where transformers' own ids differ, it is for the rule it drops; see the docstring of the script."""
    different = [row["text"] for row in ROWS if row["ids"] != row["ids_declared"]]
    assert len(different) < len(ROWS) / 3
    for text in different:
        assert any(a.isspace() and b.isnumeric() for a, b in itertools.pairwise(text)), text


def test_json_makes_the_same_tokenizer(tokenizer: TokenizerHandle) -> None:
    copy = Tokenizer.from_str(tokenizer.json)
    for row in ROWS:
        assert copy.encode(row["text"]).ids == tokenizer.encode(row["text"])
    assert tokenizer.json is tokenizer.json


def test_special_tokens(tokenizer: TokenizerHandle) -> None:
    assert tokenizer.encode("<|im_start|>") == [1]
    assert tokenizer.decode([1, 2]) == ""
    assert tokenizer.decode([1, 2], skip_special=False) == "<|im_start|><|im_end|>"
    assert tokenizer.token_to_id("<|im_end|>") == 2 and tokenizer.token_to_id("no such") is None
    assert tokenizer.vocab_size == 49152


def test_bos_is_added_where_the_file_says_so(tiny_gguf: Callable[..., Path]) -> None:
    tokenizer = TokenizerHandle(open_model(tiny_gguf(add_bos=True)))
    assert tokenizer.encode("hi")[0] == 0
    assert 0 not in tokenizer.encode("hi", add_special=False)


def test_a_stored_cut_is_dropped(tiny_folder: Callable[..., Path]) -> None:
    """A tokenizer.json with a truncation from training would shorten prompts in silence."""
    folder = tiny_folder()
    stored = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stored.enable_truncation(3)
    stored.enable_padding(length=8)
    stored.save(str(folder / "tokenizer.json"))
    handle = TokenizerHandle(open_model(folder))
    assert len(handle.encode("a long text")) == 11
    assert len(Tokenizer.from_str(handle.json).encode("a long text").ids) == 11


def test_other_threads_run_while_encoding(tokenizer: TokenizerHandle) -> None:
    """The ticks of this thread go on during a long encode: the GIL is free. No claim about how fast."""
    text = "some words and numbers 12 34 " * 40_000
    done = threading.Event()

    def work() -> None:
        tokenizer.encode(text)
        done.set()

    worker = threading.Thread(target=work)
    ticks = 0
    worker.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    worker.join()
    assert ticks > 20
