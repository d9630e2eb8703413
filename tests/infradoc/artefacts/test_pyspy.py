import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.pyspy import PySpyKind
from infradoc.artefacts.model import Segment

DUMP = """Process 311: python -m vllm.entrypoints.openai.api_server --model m
Python v3.10.14 (/usr/bin/python3.10)

Thread 311 (active+gil): "MainThread"
    _batch_encode_plus (transformers/tokenization_utils_fast.py:539)
    create_completion (vllm/entrypoints/openai/serving_completion.py:120)
Thread 340 (idle): "ThreadPoolExecutor-0_0"
    _worker (concurrent/futures/thread.py:81)"""
TOP = """Total Samples 3000   GIL: 81.00%, Active: 96.00%   process: router
  %Own   %Total  Function (filename)
 71.00%  78.00%   _tokenize (serve/router.py)
  4.00%  92.00%    1.20s   9.90s   get_next_server (serve/router.py)"""
COLLAPSED = "main;serve;encode 30\nmain;serve;decode;detok 50\nmain;serve;send;flush 20"
FAULT = """Thread 0x00007f1 (most recent call first):
  File "/opt/vllm/worker.py", line 12 in wait_for
  File "/opt/vllm/core.py", line 3 in run"""


def events_of(text):
    lines = text.splitlines()
    kind = PySpyKind()
    return [
        event
        for start, end in kind.spans(lines)
        for event in kind.read(Segment(kind.name, "p", start + 1, lines[start:end])).events
    ]


def test_dump_tells_state_and_frames_of_each_thread():
    first, second = events_of(DUMP)
    assert first.fields["top"] == "_batch_encode_plus"
    assert first.fields["holds_gil"] is True
    assert first.fields["functions"] == "_batch_encode_plus create_completion"
    assert first.fields["process"].startswith("python -m vllm")
    assert (second.fields["state"], second.fields["thread"]) == ("idle", "ThreadPoolExecutor-0_0")


def test_profile_has_own_and_total_shares_with_or_without_times():
    rows = events_of(TOP)
    assert [(row.fields["top"], row.fields["share"], row.fields["total_share"]) for row in rows] == [
        ("_tokenize", pytest.approx(0.71), pytest.approx(0.78)),
        ("get_next_server", pytest.approx(0.04), pytest.approx(0.92)),
    ]


def test_collapsed_stacks_become_shares():
    shares = {event.fields["top"]: event.fields["total_share"] for event in events_of(COLLAPSED)}
    assert shares["main"] == 1.0
    assert shares["detok"] == 0.5


def test_faulthandler():
    (event,) = events_of(FAULT)
    assert event.fields["top"] == "wait_for"


def test_a_line_that_begins_with_process_is_no_dump():
    assert PySpyKind().spans(["Process 12: exited with code 1", "INFO ready"]) == []


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r"), max_size=60), max_size=12
    )
)
def test_any_text_is_survived(lines):
    kind = PySpyKind()
    for start, end in kind.spans(lines):
        kind.read(Segment(kind.name, "x", start + 1, lines[start:end]))
