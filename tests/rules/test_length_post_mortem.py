"""What a post-mortem's events say of lengths."""

from __future__ import annotations

import pytest

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import length_error, scan
from infradoc_rules.summaries.length import summary


def _facts(*rows, system=None, **known):
    events = [
        Event(name, order, fields, None, None, source, None, repeat)
        for order, (name, fields, source, repeat) in enumerate((_row(row) for row in rows), start=1)
    ]
    facts = {name.replace("__", "."): Fact(name.replace("__", "."), value, "flag") for name, value in known.items()}
    return {fact.name: fact.value for fact in summary(events, facts, system)}


def _row(row):
    name, fields, *rest = row
    return name, fields, rest[0] if rest else "server.log:1", rest[1] if len(rest) > 1 else 1


def _refused(source, tokens=5000, limit=4096):
    return "request_rejected_length", {"tokens": tokens, "limit": limit}, source


def test_nothing_read_says_nothing():
    assert _facts() == {}


def test_a_refusal_in_log_and_client_is_one():
    found = _facts(_refused("server.log:4"), _refused("client.txt:9"))
    assert found["length.refused"] == 1 and found["length.refused_share"] == 1.0


def test_different_refusals_count_apart_and_against_the_requests():
    access = ("http_access", {"path": "/v1/chat/completions", "code": 200}, "server.log:1", 60)
    found = _facts(_refused("server.log:4"), _refused("server.log:9", 6000), access)
    assert found["length.refused"] == 2 and found["length.refused_share"] == pytest.approx(2 / 60)


def test_a_line_without_numbers_is_an_echo():
    assert _facts(_refused("a.json:1"), ("request_rejected_length", {}, "b.log:7"))["length.refused"] == 1


def test_an_empty_answer_with_the_reason_length_is_a_refusal():
    empty = ("request_finished", {"reason": "length", "output_tokens": 0, "empty": True})
    assert _facts(empty)["length.refused"] == 1
    assert _facts(empty, _refused("server.log:4"))["length.refused"] == 1


def test_shifts_of_one_request_are_one_cut():
    found = _facts(("context_shifted", {"discarded": 31}, "s.log:3", 5))
    assert found["length.shifts"] == 5 and found["length.cut"] == 1


def test_a_cut_that_was_asked_for_does_not_count():
    cut = ("request_truncated", {"tokens": 900, "limit": 512})
    assert _facts(cut)["length.cut"] == 1
    assert _facts(cut, ("request_sent", {"words": 900, "truncation": "512"}))["length.cut"] == 0


def test_an_answer_that_counts_fewer_tokens_than_words_were_sent():
    answer = ("request_finished", {"prompt_tokens": 512, "output_tokens": 9, "reason": "stop"})
    assert _facts(("request_sent", {"words": 3000}), answer)["length.unseen_cut"] is True
    assert _facts(("request_sent", {"words": 380}), answer)["length.unseen_cut"] is False
    window = ("request_finished", {"prompt_tokens": 2048, "output_tokens": 9, "reason": "stop"})
    assert _facts(window, system="ollama")["length.unseen_cut"] is True
    assert _facts(window, system="ollama", max_model_len=8192)["length.unseen_cut"] is False


def _ended(output, reason="length", prompt=50, **more):
    return "request_finished", {"prompt_tokens": prompt, "output_tokens": output, "reason": reason, **more}


def test_answers_at_their_limit():
    found = _facts(_ended(512), _ended(512), _ended(100, "stop"))
    assert found["length.capped_share"] == pytest.approx(2 / 3)
    assert (found["length.cap"], found["length.capped_by"]) == (512, "request")


def test_a_full_window_is_told_from_a_small_cap():
    assert _facts(_ended(1048, prompt=3048), max_model_len=4096)["length.capped_by"] == "context"


@pytest.mark.parametrize(
    "rows",
    [
        [_ended(1), _ended(2)],  # labels
        [_ended(256), ("request_sent", {"fixed": True})],  # ignore_eos
        [_ended(256), ("output_invalid", {"what": "repeated"})],  # noise never ends
        [_ended(0, empty=True)],  # a prompt that was ignored
    ],
)
def test_limits_by_wish_or_for_another_cause_do_not_count(rows):
    assert _facts(*rows)["length.capped_share"] == 0.0


@pytest.mark.parametrize(
    ("length", "stop", "asked", "share"),
    [
        (900, 100, 120, 0.9),
        (1000, 0, 128, 0.0),  # a benchmark with ignore_eos
        (1000, 0, 16, 1.0),  # the default of the completions route
        (30, 10, 120, 0.0),  # too few to tell
    ],
)
def test_a_metrics_page_that_counts_ends(length, stop, asked, share):
    counted = {
        "metrics__llm_requests_finished_total__length": length,
        "metrics__llm_requests_finished_total__stop": stop,
        "metrics__llm_request_max_tokens__mean": asked,
        "metrics__llm_request_output_tokens__mean": 0.95 * asked,
    }
    assert _facts(("stats_line", {"running": 1}), **counted)["length.capped_share"] == share


@pytest.mark.parametrize(
    ("lines", "known", "pressed"),
    [
        ({"running": 16, "waiting": 20, "kv_usage": 0.1}, {}, True),
        ({"running": 16, "waiting": 20, "kv_usage": 0.98}, {}, False),  # a full pool is another cause
        ({"running": 256, "waiting": 20, "kv_usage": 0.3}, {"max_num_seqs": 256}, False),  # so is the batch limit
        ({"running": 2, "waiting": 20, "kv_usage": 0.3}, {"max_num_seqs": 2}, True),  # chosen for the window
        ({"running": 2, "waiting": 0, "kv_usage": 0.3}, {}, False),
    ],
)
def test_what_counts_as_a_lack_of_room(lines, known, pressed):
    assert _facts(*[("stats_line", lines)] * 3, **known)["length.pressed"] is pressed


def test_a_window_far_above_what_is_served():
    served = [_ended(200 + step, "stop", 600) for step in range(6)]
    waiting = [("stats_line", {"running": 16, "waiting": 20})] * 2
    pool = ("kv_allocated", {"max_model_len": 131072, "concurrency": 1.02})
    found = _facts(*served, *waiting, pool)
    assert found["length.oversized"] == pytest.approx(131072 / 805)
    assert (found["length.room"], found["length.pressed"]) == (1.02, True)
    near = ("kv_allocated", {"max_model_len": 8192, "concurrency": 1.02})
    assert "length.oversized" not in _facts(*served[:3], near), "three requests say nothing on the others"
    assert "length.oversized" in _facts(*served[:3], pool), "but a window 160 times as long is plain"


def test_a_metrics_page_alone_says_nothing_of_refusals():
    counted = {"metrics__llm_requests_finished_total__length": 90, "metrics__llm_requests_finished_total__stop": 10}
    found = _facts(**counted)
    assert found["length.capped_share"] == 0.9 and "length.refused" not in found


@pytest.mark.parametrize(("asked", "kept", "cut"), [(1024, 221, 1), (1024, 900, 0), (None, 221, 1), (None, 2000, 0)])
def test_an_answer_far_shorter_than_asked_is_a_cut(asked, kept, cut):
    fields = {"kept_tokens": kept, "limit": 4096, "part": "output", **({"tokens": asked} if asked else {})}
    assert _facts(("request_truncated", fields))["length.cut"] == cut


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("max_tokens must be at least 1, got -186.", None),
        ("max_model_len(40960) - num_tokens(118444) < max_tokens(1024). Setting max_tokens: -77484", 118444),
        ("prompt is too long: 21661 tokens > 8209 maximum", 21661),
        ("litellm.exceptions.ContextWindowExceededError: Error code: 400", None),
        ("fatal: prompt length 9000 exceeds max_input_len 8192", 9000),
        ("The prompt (total length 22001) is too long to fit into the model (context length 16384).", 22001),
        (
            "input (3000 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
            3000,
        ),
    ],
)
def test_refusals_in_the_words_of_clients_and_gateways(text, tokens):
    found = length_error(text)
    assert found is not None and found.fields.get("tokens") == tokens


@pytest.mark.parametrize(
    "line",
    [
        "the slot context (320000) exceeds the training context of the model (262144) - capping",
        "warning: model was trained on only 2048 context tokens (4096 specified)",
        "max_seq_len 131072 is larger than max_position_embeddings 40960 * rotary scaling 1",
    ],
)
def test_limits_above_the_model_that_are_no_error(line):
    (event,) = [e for e in scan([line], "llamacpp").events if e.name == "length_above_model"]
    assert event.fields["fatal"] is False and event.fields["asked_tokens"] > event.fields["model_tokens"]


@pytest.mark.parametrize(
    ("placed", "size", "squeezed"),
    [(14, 16 << 30, True), (33, 16 << 30, False), (14, 256 << 20, False)],
)
def test_a_context_that_pushes_layers_out(placed, size, squeezed):
    places = ("layers_placed", {"placed": placed, "layers": 33})
    found = _facts(places, ("kv_allocated", {"bytes": size}), _ended(212, "stop", 611), max_model_len=131072)
    assert found["length.squeezed"] is squeezed
    assert found["length.oversized"] == pytest.approx(131072 / 823), "one request says enough at such a distance"


def test_a_note_of_what_was_sent_and_a_count_of_what_arrived():
    rows = ("request_sent", {"words": 26180}), ("request_finished", {"prompt_tokens": 2051, "output_tokens": 90})
    assert _facts(*rows)["length.unseen_cut"] is True
    cached = ("request_finished", {"prompt_tokens": 2051, "output_tokens": 90, "phase": "prompt"})
    assert _facts(rows[0], cached)["length.unseen_cut"] is False


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ValueError: Requested tokens (5321) exceed context window of 4096", "request_rejected_length"),
        ("Input of 3120 tokens truncated to 512 tokens", "request_truncated"),
        ("session_len 65536 exceeds the model's max_position_embeddings 32768", "length_above_model"),
        ("request: 26180 prompt tokens (estimated)", "request_sent"),
        ("usage: prompt_tokens=2051 completion_tokens=2528", "request_finished"),
    ],
)
def test_lines_on_lengths(line, name):
    assert [event.name for event in scan([line]).events] == [name]
