"""The OpenAI-compatible API, through the openai client where it can say what is tested."""

from __future__ import annotations

from typing import Any

import openai
import pytest

MODEL = "smollm2-135m"
FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(server: Any) -> Any:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat_answers_like_the_model(client: Any) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=FRANCE, temperature=0, max_completion_tokens=20)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 37
    assert answer.usage.total_tokens == 37 + answer.usage.completion_tokens


def test_stream_says_the_same_as_the_whole_answer(client: Any) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=FRANCE,
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "The capital of France is Paris."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage.completion_tokens == 8  # with the end-of-text token


def test_completion_by_text_and_by_ids_agree(client: Any, server: Any) -> None:
    text = "The capital of France is"
    ids = server.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    by_text = client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=6)
    by_ids = client.completions.create(model=MODEL, prompt=ids, temperature=0, max_tokens=6)
    both = client.completions.create(model=MODEL, prompt=[text, "One, two,"], temperature=0, max_tokens=6)
    assert by_text.choices[0].text == by_ids.choices[0].text == both.choices[0].text
    assert by_text.choices[0].text.startswith(" Paris")
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[1].text != both.choices[0].text


def test_completion_logprobs(client: Any) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=5, logprobs=3
    )
    found = answer.choices[0].logprobs
    assert "".join(found.tokens) == answer.choices[0].text
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(5)]
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert logprob < 0
        assert top[token] == pytest.approx(logprob)  # greedy: the picked one is the best
        assert logprob == max(top.values())


def test_chat_logprobs(client: Any) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=FRANCE, temperature=0, max_tokens=4, logprobs=True, top_logprobs=2
    )
    entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content
    assert all(bytes(entry.bytes).decode() == entry.token for entry in entries)
    assert all(len(entry.top_logprobs) == 2 and entry.top_logprobs[0].token == entry.token for entry in entries)


def test_stop_text_ends_the_answer_before_it(client: Any) -> None:
    whole = client.completions.create(model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=12)
    text = whole.choices[0].text
    stop = text[7:12]  # begins and ends inside tokens
    cut = client.completions.create(
        model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=12, stop=[stop]
    )
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < 12


def test_n_answers_differ_and_a_seed_repeats_them(client: Any) -> None:
    def ask(seed: int) -> list[str]:
        answer = client.completions.create(
            model=MODEL, prompt="Once upon a time", temperature=1.0, max_tokens=8, n=3, seed=seed
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.text for choice in answer.choices]

    first, again, other = ask(7), ask(7), ask(8)
    assert first == again
    assert len(set(first)) > 1
    assert first != other


def test_ignore_eos_and_min_tokens_reach_max_tokens(client: Any) -> None:
    for extra in ({"ignore_eos": True}, {"min_tokens": 16}):
        answer = client.chat.completions.create(
            model=MODEL, messages=FRANCE, temperature=0, max_tokens=16, extra_body=extra
        )
        assert answer.usage.completion_tokens == 16
        assert answer.choices[0].finish_reason == "length"


def test_characters_of_many_tokens_arrive_whole(client: Any) -> None:
    prompt = "Repeat after me: 你好世界 😀 你好世界 😀 你好世界 😀 你好世界"
    stream = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=24, stream=True)
    pieces = [chunk.choices[0].text for chunk in stream]
    whole = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=24)
    assert "".join(pieces) == whole.choices[0].text
    assert not any("\ufffd" in piece for piece in pieces[:-1])
    assert any(ord(character) > 0x2000 for character in whole.choices[0].text)  # else nothing was tested


def test_models_lists_the_served_one(client: Any) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL


def test_unknown_model_is_404_with_the_served_name(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="smollm2-135m"):
        client.chat.completions.create(model="gpt-5", messages=FRANCE)


def test_tokenize_counts_a_chat_as_completions_do(server: Any) -> None:
    counted = server.http.post("/tokenize", json={"messages": FRANCE}).json()
    assert counted["count"] == len(counted["tokens"]) == 37
    assert counted["max_model_len"] == 512
