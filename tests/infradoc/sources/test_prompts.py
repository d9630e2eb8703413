"""Users' words stay in the house, in every form in which logs and bodies quote them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.alerts.clean import clean_text
from infradoc.report.redact import redact_text
from infradoc.sources.prompts import without_prompts

WORDS = "tell me of my illness"


@pytest.mark.parametrize(
    "text",
    [
        f"Received request cmpl-1: prompt: '{WORDS}', params: x",
        f'body {{"messages": [{{"role": "user", "content": "{WORDS}"}}]}}',
        f'prompt="{WORDS}"',
        f"Prompt: '{WORDS} and it goes on after the cut",
        "generated_text='" + WORDS.replace("my", "the user\\'s") + "'",
        json.dumps({"log": json.dumps({"prompt": WORDS, "n": 1})}),
        json.dumps({"log": json.dumps({"message": json.dumps({"content": WORDS})})}),
        f'{{"input": ["{WORDS}", "b"]}}',
        f'{{"text": "{WORDS}"}}',
        f"input_text = '{WORDS}\n and a second line'",
        "prompt: '" + WORDS * 2000 + "'",
    ],
)
@pytest.mark.parametrize("clean", [without_prompts, redact_text, clean_text])
def test_words_are_replaced_by_their_length(clean: object, text: str) -> None:
    assert callable(clean)
    shown = clean(text)
    assert "illness" not in shown and "characters]" in shown


@pytest.mark.parametrize("name", ["prompt_token_ids", "input_ids", "prompt"])
def test_words_as_tokens_are_words(name: str) -> None:
    assert without_prompts(f"{name}: [1, 2, 42]") == f"{name}: [9 characters]"


@pytest.mark.parametrize(
    "text",
    [
        "prompt tokens: 1,024 a request; token budget 2048; content of the pool: 80 blocks",
        "input: [4096, 128], text shape=[1, 2]",
        "16 prompt tokens were cut",
        "context: 'cuda:0'",
    ],
)
def test_what_nobody_said_stays(text: str) -> None:
    assert without_prompts(text) == text


def test_what_follows_stays() -> None:
    assert without_prompts("prompt: 'a b', params: x, text=\"c\" end") == (
        "prompt: [3 characters], params: x, text=[1 characters] end"
    )


PARTS = st.sampled_from(["prompt", "text", "input_ids", ":", "=", " ", "'", '"', "\\", "[", "]", "{", "x", "12", "\n"])


@given(st.lists(PARTS, max_size=40).map("".join))
def test_twice_is_no_more_than_once(text: str) -> None:
    once = without_prompts(text)
    assert without_prompts(once) == once


@pytest.mark.parametrize("text", ["prompt: '" * 20_000, 'text=\\"' * 20_000, "content:[{" * 20_000, "prompt" * 50_000])
def test_a_long_line_takes_linear_time(text: str) -> None:
    assert without_prompts(text)  # the suite's timeout is the bound: quadratic patterns take minutes here
