"""Requests and answers as clients see them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.artefacts.kinds.response import ResponseKind
from infradoc.artefacts.model import Segment


def _read(*lines):
    return ResponseKind().read(Segment("response", "r.json", 1, list(lines))).events


def _one(value):
    (event,) = _read(*json.dumps(value, indent=2).splitlines())
    return event.name, dict(event.fields)


OLD = (
    "This model's maximum context length is 4096 tokens. However, you requested 4608 tokens "
    "(4096 in the messages, 512 in the completion)."
)
LIMITS = [
    (
        {"object": "error", "message": OLD, "code": 400},
        {"tokens": 4608, "limit": 4096, "output_tokens": 512},
    ),
    (
        {
            "error": {
                "message": "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
                "code": 400,
            }
        },
        {"tokens": 9001, "limit": 8192},
    ),
    (
        {
            "error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1883",
            "error_type": "validation",
        },
        {"tokens": 1883, "limit": 1024},
    ),
    (
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 3391,
                "n_ctx": 2048,
            }
        },
        {"tokens": 3391, "limit": 2048},
    ),
    (
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your messages "
                "resulted in 8227 tokens.",
                "code": "context_length_exceeded",
            }
        },
        {"tokens": 8227, "limit": 8192},
    ),
    (
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "code": 400,
        },
        {"tokens": 61709, "limit": 40960},
    ),
]


@pytest.mark.parametrize(("body", "numbers"), LIMITS)
def test_a_refusal_for_length_gives_its_numbers(body, numbers):
    name, fields = _one(body)
    assert name == "request_rejected_length"
    assert {key: fields[key] for key in numbers} == numbers


def test_other_errors_are_no_refusal_for_length():
    assert _one({"error": {"message": "Server is busy", "code": 503}})[0] == "request_rejected_load"
    assert _one({"error": "Model is overloaded", "error_type": "overloaded"})[0] == "request_rejected_load"
    assert _read('{"error": {"message": "model not found", "code": 404}}') == []


ENDS = [
    (
        {
            "choices": [{"text": " a b", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 16},
        },
        5,
        16,
    ),
    ({"generated_text": "x y", "details": {"finish_reason": "length", "generated_tokens": 20}}, None, 20),
    (
        {
            "text": "x y",
            "meta_info": {"finish_reason": {"type": "length", "length": 8}, "prompt_tokens": 3, "completion_tokens": 8},
        },
        3,
        8,
    ),
    (
        {
            "model": "m",
            "response": "x y",
            "done": True,
            "done_reason": "length",
            "prompt_eval_count": 9,
            "eval_count": 128,
        },
        9,
        128,
    ),
    ({"content": "x y", "stopped_limit": True, "tokens_evaluated": 7, "tokens_predicted": 64}, 7, 64),
    (
        {
            "content": [{"type": "text", "text": "x"}],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 4, "output_tokens": 6},
        },
        4,
        6,
    ),
    (
        {
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "x y"}]}],
            "usage": {"input_tokens": 75, "output_tokens": 256},
        },
        75,
        256,
    ),
]


@pytest.mark.parametrize(("body", "prompt", "output"), ENDS)
def test_an_answer_at_its_limit_is_told_in_every_api(body, prompt, output):
    name, fields = _one(body)
    assert (name, fields["reason"]) == ("request_finished", "length")
    assert (fields.get("prompt_tokens"), fields["output_tokens"]) == (prompt, output)


def test_a_cut_is_told_by_the_flag_and_only_by_it():
    cut = _read(
        '{"content": "x.", "truncated": true, "tokens_evaluated": 500, "tokens_predicted": 3, "stopped_eos": true}'
    )
    assert [event.name for event in cut] == ["request_finished", "request_truncated"]
    whole = _read(
        '{"content": "x.", "truncated": false, "tokens_evaluated": 500, "tokens_predicted": 3, "stopped_eos": true}'
    )
    assert [event.name for event in whole] == ["request_finished"]


def test_an_answer_of_one_character_is_no_language():
    events = _read(json.dumps({"choices": [{"text": "!" * 60, "finish_reason": "length"}]}))
    assert [event.name for event in events] == ["request_finished", "output_invalid"]


@pytest.mark.parametrize(("text", "broken"), [("AI " * 30, True), ("no, " * 5, False), ("A B " * 20, False)])
def test_one_word_without_end_is_no_language(text, broken):
    events = _read(json.dumps({"choices": [{"text": text, "finish_reason": "length"}]}))
    assert ("output_invalid" in [event.name for event in events]) is broken


def test_a_request_tells_its_length_and_wishes():
    name, fields = _one(
        {"model": "m", "prompt": "one two three", "max_tokens": 64, "ignore_eos": True, "truncate_prompt_tokens": 512}
    )
    assert name == "request_sent"
    assert fields == {"words": 3, "asked_tokens": 64, "truncation": "512", "fixed": True}


def test_objects_of_python_and_tallies():
    (event,) = _read("CompletionOutput(index=0, text='', token_ids=[], finish_reason=length)")
    assert event.fields == {"reason": "length", "output_tokens": 0, "empty": True}
    assert [event.repeat for event in _read("Counter({'length': 480, 'stop': 20})")] == [480, 20]
    counts = _read("finish reasons: {'length': 913, 'stop': 87}")
    assert [(event.fields["reason"], event.repeat) for event in counts] == [("length", 913), ("stop", 87)]


def test_an_empty_answer_keeps_its_zero():
    body = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": {"completion_tokens": 0}}
    assert _one(body)[1] == {"reason": "length", "output_tokens": 0, "empty": True}


def test_a_stream_is_read_to_its_end():
    (event,) = _read(
        'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}',
        'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}',
        "data: [DONE]",
    )
    assert event.fields["reason"] == "length"


def test_lines_of_a_log_are_not_claimed():
    lines = [
        'INFO:     10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
        "INFO 07-20 08:05:12 async_llm_engine.py:182] Received request: SamplingParams(n=1, max_tokens=512)",
        "the reason for this is unclear",
        '{"fp16": true, "train_batch_size": 8}',
        '{"log_history": [], "max_tokens": 3, "prompt": "x"}',
    ]
    assert ResponseKind().spans(lines) == []


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "error",
                        "message",
                        "usage",
                        "text",
                        "meta_info",
                        "details",
                        "response",
                        "done",
                        "finish_reason",
                        "prompt",
                        "max_tokens",
                        "object",
                        "truncated",
                        "content",
                        "code",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
    )
)
def test_any_json_is_survived(value):
    lines = json.dumps(value, indent=1).splitlines()
    ResponseKind().spans(lines)
    ResponseKind().read(Segment("response", "r.json", 1, lines))


@pytest.mark.parametrize(
    "line",
    [
        "instructor.exceptions.IncompleteOutputException: The output is incomplete due to a max_tokens length limit.",
        "UnexpectedModelBehavior: Model token limit (256) exceeded before any response was generated.",
        "LM response was truncated due to exceeding max_tokens=1000.",
        "The completion for index 0 has been truncated before reaching a natural stopping point.",
        "Output tokens: ~4,096 of 4,096 -- possibly exceeded output limit!",
        "error: the model reached the maximum output token limit and stopped",
        "finish_reason -> 'length'",
    ],
)
def test_clients_tell_of_an_answer_that_is_not_whole(line):
    assert ResponseKind().spans(["a log line", line]) == [(1, 2)]
    assert [(event.name, event.fields["reason"]) for event in _read(line)] == [("request_finished", "length")]


@pytest.mark.parametrize(
    "line",
    [
        "the rate limit was reached",
        'msg="truncating input prompt" limit=2048 prompt=3940',
        "max_tokens must be at least 1, got -5",
        "completion ended by the client after 12 tokens",
    ],
)
def test_other_limits_are_no_cut_answer(line):
    assert "length" not in {event.fields.get("reason") for event in _read(line)}


def test_an_error_code_may_be_anything():
    assert _read('{"error": {"message": null}, "message": null, "code": []}') == []
