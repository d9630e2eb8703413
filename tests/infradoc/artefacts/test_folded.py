"""Logs in another form: strings of a program, exports of collectors, documents, numbered and overwritten lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.gutters import gutter, hosts
from infradoc.artefacts.literals import printed, printed_line
from infradoc.artefacts.overwritten import behind_bars, shown
from infradoc.artefacts.records import message_of, time_of
from infradoc.artefacts.richtext import text_of
from infradoc.artefacts.text import clean
from infradoc.artefacts.unfold import unfolded

LOG = [
    "INFO 11-29 20:34:30 [api_server.py:1] vLLM API server version 0.11.0",
    "Traceback (most recent call last):",
    '  File "/a/worker.py", line 3, in load_model',
    'RuntimeError: it\'s "broken" \u2581 \U0001f525',
]
TEXT = "\n".join(LOG) + "\n"
BAR = "Loading:  40%|####      | 4/10 [00:04<00:06,  1.0it/s]"


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        (
            f"{BAR}\rERROR 11-29 20:34:30 [a.py:1] CUDA out of memory",
            ["ERROR 11-29 20:34:30 [a.py:1] CUDA out of memory", BAR],
        ),
        (f"CUDA out of memory\r{BAR}\r{BAR}", ["CUDA out of memory", BAR]),
        (
            f"first\rsecond\r{BAR}INFO 11-29 20:34:30 [a.py:1] third",
            ["first", "second", "INFO 11-29 20:34:30 [a.py:1] third", BAR],
        ),
        ("Downloading 1 MB\rDownloading 2 MB\rDownloading 3 MB", ["Downloading 3 MB"]),
        ("$ vl\r$ vllm serve", ["$ vllm serve"]),
        ("\r\r", [""]),
    ],
)
def test_only_bars_are_overwritten(line, pieces):
    assert shown(line).split("\n") == pieces


def test_what_stands_behind_a_bar_is_a_line():
    assert behind_bars(BAR + "INFO x") == BAR + "\nINFO x"
    assert behind_bars(BAR) == BAR
    assert clean([BAR + "Traceback (most recent call last):"]) == [BAR + "\nTraceback (most recent call last):"]


@pytest.mark.parametrize(
    "form",
    [
        repr,
        json.dumps,
        lambda text: repr(text.encode()),
        lambda text: "output = " + repr(text),
        lambda text: f"CompletedProcess(args=['vllm', 'serve'], returncode=1, stdout='', stderr={text!r})",
        lambda text: json.dumps({"stdout": "", "stderr": text, "code": 1}, indent=2),
        lambda text: repr(text.splitlines()),
        lambda text: json.dumps(text.splitlines(), indent=1),
        lambda text: repr(text.splitlines(keepends=True)),
    ],
)
def test_strings_of_a_program(form):
    found = printed(form(TEXT).split("\n"))
    assert [line for line in found if line] == LOG


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"choices": [{"text": TEXT}], "object": "text_completion"}),
        json.dumps({"results": {"gsm8k": {"acc": 0.5}}, "config": {"model": "vllm"}}, indent=1),
        json.dumps({"model": "vllm", "prompt": TEXT}),
        "'a' was not found, and \"b\" was",
        "[2026-07-09 10:12:38 TP0] it said 'x\\ny' and failed",
        "'",
    ],
)
def test_answers_settings_and_prose_are_no_such_strings(text):
    assert printed(text.split("\n")) is None


def test_a_prompt_in_a_log_line_stays_one_line():
    line = "INFO 11-29 20:34:30 [a.py:1] Received request c-1: prompt: 'CUDA out of memory\\nTraceback'"
    assert printed_line(line) == line
    assert printed_line(repr(TEXT)).split("\n") == LOG


def test_records_of_collectors():
    assert message_of(json.dumps({"_source": {"@timestamp": "2026-03-04T10:00:00Z", "message": "INFO x"}})) == "INFO x"
    assert message_of(json.dumps({"result": {"_raw": "INFO x", "_time": "1772618400"}})) == "INFO x"
    assert message_of(json.dumps({"MESSAGE": [73, 110], "_PID": "1"})) == "In"
    assert (
        message_of(json.dumps({"body": {"stringValue": "INFO x"}, "timeUnixNano": "1772618400000000000"})) == "INFO x"
    )
    assert message_of(json.dumps({"message": "a server's answer", "code": 400})) is None


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        (1772618400, 1772618400.0),
        ("1772618400123", 1772618400.123),
        ("1772618400000000", 1772618400.0),
        ("1772618400000000000", 1772618400.0),
        ("2026-03-04T10:00:00Z", 1772618400.0),
        ("2026-03-04 10:00:00", 1772618400.0),
        ("yesterday", None),
        (7, None),
        (True, None),
    ],
)
def test_times_of_records(stamp, seconds):
    assert time_of(stamp) == seconds


def test_the_newest_first_is_turned_round():
    rows = [{"timestamp": f"2026-03-04T10:00:{59 - n:02}Z", "line": f"line {n}"} for n in range(3)]
    assert unfolded(json.dumps(rows, indent=1).split("\n")) == ["line 2", "line 1", "line 0"]
    table = ["Time,Message", '2026-03-04T10:00:02Z,"b, or c"', "2026-03-04T10:00:01Z,a"]
    assert unfolded(table) == ["a", "b, or c"]


def test_other_json_and_tables_stay():
    for text in (["index,name", "0,NVIDIA L40S"], ['{"a": 1}'], ["[1, 2]"], ["{"], [""]):
        assert unfolded(list(text)) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["message", "time", "ts", "body", "values", "fields", "cells", "MESSAGE", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_any_document_of_json_is_survived(data):
    lines = json.dumps(data, indent=1).split("\n")
    assert all(isinstance(line, str) for line in unfolded(list(lines)))
    assert len(clean(lines)) == len(lines)


def test_rich_text():
    document = (
        rb"{\rtf1\ansi{\fonttbl\f0\fmodern Menlo;}{\colortbl;\red255;}\f0 INFO \{a\} \'b5\uc1\u9601?\par b\\c\tab d\\"
        b"\n\xc2e}"
    )
    assert text_of(document).split("\n") == ["INFO {a} \u00b5\u2581", "b\\c\td\\\u00c2e"]


@given(st.binary(max_size=300))
def test_any_document_is_survived(data):
    assert isinstance(text_of(b"{\\rtf1 " + data), str)


@pytest.mark.parametrize(
    ("first", "second", "out"),
    [
        ("     1\tvllm serve a", "     2\t  b", ["vllm serve a", "  b"]),
        ("12:vllm serve a", "31:  b", ["vllm serve a", "  b"]),
        ("logs/a.log:12:x", "logs/a.log:13:  y", ["x", "  y"]),
        ("+vllm serve a", "+  b", ["vllm serve a", "  b"]),
        ("+ vllm serve a", "+   b", ["vllm serve a", "  b"]),
    ],
)
def test_gutters(first, second, out):
    found = gutter([first, second])
    assert [found.step(line) for line in (first, second)] == out


@pytest.mark.parametrize(
    "lines",
    [
        ["1 2.31", "2 2.10", "3 1.98"],
        ["2026-07-09 10:12:38 a", "2026-07-09 10:12:39 b"],
        ["0, NVIDIA L40S, 10", "1, NVIDIA L40S, 11"],
        ["4.0     0.041", "5.0     0.040"],
        ["+-----+", "| a   |", "+-----+"],
        ["INFO: a", "INFO: b", "INFO: c"],
        ["node1:36702:36702 [0] NCCL INFO a", "node1:36702:36702 [0] NCCL INFO b", "node1:36702:36702 [0] NCCL INFO c"],
    ],
)
def test_what_is_no_gutter(lines):
    assert gutter(lines) is None
    assert hosts(lines) is None


def test_hosts():
    lines = ["gpu-7: a", "gpu-7:   b", "gpu-8: c"]
    found = hosts(lines)
    assert [found.step(line) for line in lines] == ["a", "  b", "c"]
    assert [found.name_of(line) for line in lines] == ["gpu-7", "gpu-7", "gpu-8"]
