"""Log patterns on real logs, and on lines that want to break them."""
# ruff: noqa: E501  (log lines are as long as engines print them)

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.patterns import SYSTEMS, LogScanner, detect, length_error, pattern_set, scan
from infradoc_rules.signals import signal_table

VLLM = "(APIServer pid=28030) INFO 11-29 20:34:30 [loggers.py:335] "


@pytest.fixture(scope="module")
def scanned(recordings):
    def read(name):
        return scan((recordings / name / "server.log").read_text().splitlines(), source="server.log", year=2026)

    return read


def _one(system, line):
    scanner = LogScanner(system)
    return scanner.feed(line), scanner


@pytest.mark.parametrize("system", SYSTEMS)
def test_patterns_fill_only_known_fields_of_known_events(system):
    table = signal_table()
    for pattern in pattern_set(system).patterns:
        if pattern.event is not None:
            known = table.events[pattern.event].fields
            assert set(pattern.fields) | set(pattern.constants) <= set(known), pattern.id
        assert pattern.phase is None or pattern.phase in table.phases
        groups = set(pattern.regex.groupindex.values())
        assert {group for group, _ in pattern.fields.values()} | set(pattern.facts.values()) <= groups, pattern.id


def test_refusals_of_llamacpp(scanned):
    seen = scanned("llamacpp-03")
    refused = [event for event in seen.events if event.name == "request_rejected_length"]
    assert seen.system == "llamacpp"
    assert len(refused) == 115
    assert refused[0].fields == {"tokens": 1973, "limit": 1024}
    assert {event.phase for event in refused} == {"serving"}
    assert refused[0].source.startswith("server.log:")
    assert {name: seen.facts[name].value for name in ("max_num_seqs", "max_model_len")} == {
        "max_num_seqs": 4,
        "max_model_len": 1024,
    }
    assert seen.unparsed < 10


def test_a_vllm_log(scanned):
    seen = scanned("vllm-05")
    counts = Counter(event.name for event in seen.events)
    assert (seen.system, counts["stats_line"], counts["kv_allocated"]) == ("vllm", 10, 1)
    last = [event for event in seen.events if event.name == "stats_line"][-1]
    assert last.fields["running"] == 7 and last.fields["waiting"] == 9
    assert last.fields["kv_usage"] == pytest.approx(0.957)
    assert last.time == pytest.approx(1795984470.0)
    assert seen.facts["kv_pool_tokens"].value == 3072
    assert seen.facts["kv.pool_blocks_fitting"].value == 364
    assert seen.facts["target.version"].value == "0.32.0"


def test_a_failed_start(scanned):
    seen = scanned("vllm-16")
    budget = next(event for event in seen.events if event.name == "kv_budget" and event.fields.get("fits") is False)
    assert budget.fields["needed_bytes"] > budget.fields["available_bytes"]
    assert budget.phase != "serving"


def test_phases_follow_the_start(scanned):
    phases = [event.phase for event in scanned("vllm-01").events]
    order = [signal_table().phases.index(phase) for phase in phases]
    assert order == sorted(order)
    assert phases[-1] == "serving"


def test_order_is_the_order_of_lines(scanned):
    events = scanned("vllm-07").events
    assert [event.order for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    ("system", "line", "event", "fields"),
    [
        (
            "vllm",
            VLLM + "Engine 000: Avg prompt throughput: 24.0 tokens/s, Avg generation throughput: 10.1 tokens/s, Running: 52 reqs,"
            " Waiting: 48 reqs, Preemptions: 12, GPU KV cache usage: 99.8%, Prefix cache hit rate: 1.5%",
            "preempted",
            {"count": 12, "mode": "recompute"},
        ),
        (
            "vllm",
            "Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space."
            " This can affect. total_num_cumulative_preemption=51",
            "preempted",
            {"request": "cmpl-1", "mode": "RECOMPUTE", "cumulative": 51, "count": 1},
        ),
        (
            "vllm",
            "Input prompt (2518 tokens) is too long and exceeds limit of 2048",
            "request_rejected_length",
            {"tokens": 2518, "limit": 2048, "which": "step_budget"},
        ),
        ("vllm", "ERROR EngineCore encountered a fatal error.", "engine_failed", {"what": "encountered a fatal error"}),
        ("vllm", '127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 400', "http_access", {"method": "POST", "path": "/v1/completions", "code": 400}),
        ("llamacpp", "slot update_slots: id 0 | task 3 | slot context shift, n_keep = 0, n_left = 63, n_discard = 31", "context_shifted", {"kept": 0, "left": 63, "discarded": 31}),
        ("llamacpp", "slot release: id 0 | task 3 | stop processing: n_past = 102, truncated = 1", "request_truncated", {"tokens": 102, "policy": "shift"}),
        ("llamacpp", "\x1b[32msrv send_error: request (99 tokens) exceeds the available context size (64 tokens)\x1b[0m", "request_rejected_length", {"tokens": 99, "limit": 64}),
    ],
)  # fmt: skip
def test_lines(system, line, event, fields):
    events, _ = _one(system, line)
    assert fields.items() <= next(found for found in events if found.name == event).fields.items()


def test_a_slot_that_ends_normally_is_released_and_nothing_else():
    events, _ = _one("llamacpp", "slot release: id 3 | task 1 | stop processing: n_tokens = 84, truncated = 0")
    assert [(event.name, event.fields) for event in events] == [("slot_released", {"slot": 3, "task": 1, "tokens": 84})]


def test_a_limit_said_earlier_is_filled_in():
    scanner = LogScanner("llamacpp")
    scanner.feed("srv init: initializing slots, n_slots = 10")
    scanner.feed("slot init: id  0 | task -1 | new slot n_ctx_slot = 102")
    events = scanner.feed("slot release: id 0 | task 0 | stop processing: n_past = 71, truncated = 1")
    [event] = [event for event in events if event.name == "request_truncated"]
    assert event.fields == {"tokens": 71, "limit": 102, "policy": "shift"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_unknown_lines_are_counted_and_blank_ones_are_not(system):
    scanner = LogScanner(system)
    for line in ("", "   ", "something else", "\x1b[0m"):
        assert scanner.feed(line) == []
    assert (scanner.lines, scanner.unparsed) == (4, 1)


def test_times():
    offset = LogScanner("llamacpp", start=1000.0).feed(
        "1.17.751.104 E srv send_error: request (9 tokens) exceeds the available context size (4 tokens)"
    )
    assert offset[0].time == pytest.approx(1077.751104)
    assert (
        LogScanner("vllm", year=2026, utc_offset=3600).feed(VLLM + "Application startup complete")[0].time
        == 1795984470.0 - 3600
    )
    assert LogScanner("vllm").feed(VLLM + "Application startup complete", now=5.0)[0].time == 5.0
    assert LogScanner("vllm").feed(VLLM + "Application startup complete")[0].time is None
    assert (
        LogScanner("vllm", year=2025).feed("INFO 02-29 10:00:00 [a.py:1] Application startup complete")[0].time is None
    )


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ('{"error":{"message":"request (1973 tokens) exceeds the available context size (1024 tokens), try increasing it"}}', {"tokens": 1973, "limit": 1024}),
        ("This model's maximum context length is 2048 tokens. However, you requested 100 output tokens and your prompt contains at least 1949 input tokens, for", {"tokens": 1949, "limit": 2048, "output_tokens": 100}),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion).", {"tokens": 5000, "limit": 4096}),
        ("This model's maximum context length is 2048 tokens. However, your prompt contains 99999 characters (more than 20480 characters, which is the upper bound for 2047 input tokens).", {"tokens": 2047, "limit": 2048}),
    ],
)  # fmt: skip
def test_refusals_in_a_response_body(body, fields):
    assert fields.items() <= length_error(body).fields.items()


def test_another_error_is_no_refusal_for_length():
    assert length_error('{"error": "model not found"}') is None


@pytest.mark.parametrize(
    ("lines", "system"),
    [([], None), (["hello"], None), ([VLLM + "x"], "vllm"), (["slot release: id  3 | task 1 | x"], "llamacpp")],
)
def test_detection(lines, system):
    assert detect(lines) == system
    assert scan(lines).system == system


def test_an_unknown_log_is_all_unparsed():
    seen = scan(["a", "b"])
    assert (seen.system, seen.lines, seen.unparsed) == (None, 2, 2)


@pytest.mark.parametrize("system", SYSTEMS)
@given(line=st.text(max_size=300))
def test_no_line_raises(system, line):
    LogScanner(system, year=2026, start=0.0).feed(line)


@pytest.mark.parametrize("system", SYSTEMS)
def test_hostile_lines_cost_no_more_than_long_ones(system):
    scanner = LogScanner(system, year=2026, start=0.0)
    for piece in (
        "request (" * 5,
        "Running: 9 reqs, Waiting: 9 reqs, Preemptions: ",
        "9" * 50,
        "(APIServer pid=",
        "size = ",
    ):
        scanner.feed(piece * 200_000)
    assert scanner.lines == 5  # a backtracking engine would be at the first one for hours, until the suite's timeout


def test_numbers_that_are_none_stay_text():
    events, scanner = _one("llamacpp", f"n_slots = 4 initializing, n_slots = {'9' * 500}")
    assert isinstance(events[0].fields["slots"], str)
    assert scanner.facts["max_num_seqs"].value == "9" * 500
