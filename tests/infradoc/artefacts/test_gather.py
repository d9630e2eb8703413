"""Texts are split by content, read as the right engine, and put in order."""
# ruff: noqa: E501

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds import KINDS
from infradoc.artefacts.log_reader import LogReader
from infradoc.artefacts.model import Artefact
from infradoc.artefacts.spans import command_spans, json_spans, runs, yaml_spans
from infradoc.artefacts.split import split
from infradoc.artefacts.thin import Thinner
from infradoc_rules.model import Event
from infradoc_rules.patterns import LogScanner

VLLM = "(APIServer pid=9) INFO 11-29 20:34:{:02d} [loggers.py:257] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
ACCESS = 'INFO:     10.0.0.{}:5{} - "POST /v1/completions HTTP/1.1" {} OK'
METRICS = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0"""
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t0-31"


def test_one_paste_with_everything(read):
    paste = (
        f"Hi, it is slow:\n\n```\n{VLLM.format(1, 2.0, 3)}\n{METRICS}\n{VLLM.format(2, 2.0, 3)}\n{TOPO}\n```\nThanks!"
    )
    seen = read(paste=paste)
    assert [kind for _, kind in seen.kinds] == ["metrics", "topology", "log"]
    assert [event.source for event in seen.events if event.name == "stats_line"] == ["paste:4", "paste:10"]
    assert seen.facts["metrics.llm_preemptions_total"].value == 7.0
    assert seen.system == "vllm" and seen.unparsed == 2


@given(
    st.lists(
        st.sampled_from(
            [*METRICS.split("\n"), *TOPO.split("\n"), VLLM.format(1, 2.0, 3), "", "prose", "key: 1", "{", "}"]
        ),
        max_size=30,
    )
)
def test_segments_cover_a_text_once(lines):
    segments = split("x", lines)
    owned = [0] * len(lines)
    for segment in segments:
        for offset, line in enumerate(segment.lines):
            if line.strip():
                owned[segment.first_line - 1 + offset] += 1
                assert line == lines[segment.first_line - 1 + offset]
    assert owned == [1 if line.strip() else 0 for line in lines]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(lines=st.lists(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=80), max_size=12))
def test_no_text_breaks_a_kind(kind, lines):
    found = kind.spans(lines)
    assert kind.name != "log" or not found  # a log is what the others leave
    for start, end in found:
        assert 0 <= start < end <= len(lines)


def test_runs_and_values():
    assert runs(["a", "b", "a", "c", "c", "a"], lambda line: line == "a", gap=1) == [(0, 3), (5, 6)]
    assert command_spans(
        ["x", "A=1 \\", "  vllm serve m \\", "  --tp 2", "INFO"], lambda line: "vllm serve" in line
    ) == [(1, 4)]
    assert json_spans(
        ["no {", "{", '"a": "}",', '"b": [1]', "}", "{bad", "[1]"], lambda value: isinstance(value, dict)
    ) == [(1, 5)]
    assert yaml_spans(
        ["INFO x", "kind: Pod", "spec:", "  a: 1", "- b", "INFO y"], lambda lines: "kind: Pod" in lines
    ) == [(1, 5)]


def test_the_engine_is_the_one_that_launch_and_most_lines_name(read):
    sglang = "[2025-11-30 12:00:00 TP0] max_total_num_tokens=1, chunked_prefill_size=2\n" * 3
    seen = read(a=sglang, b="vllm serve m\n", c=VLLM.format(1, 2.0, 3))
    assert seen.system == "vllm"
    assert [event.name for event in seen.events if event.source.startswith("c:")] == ["stats_line"]


def test_a_log_without_its_prefixes_is_read_as_the_engine_of_the_folder(read):
    bare = VLLM.format(1, 2.0, 3).partition("] ")[2]
    assert [event.name for event in read(x=bare, y="vllm serve m\n").events] == ["stats_line"]


def test_logs_are_merged_by_time_and_keep_their_own_order(read):
    seen = read(
        a='[2025-11-30 12:00:05] INFO:     1.1.1.1:1 - "GET /a HTTP/1.1" 200 OK\n[2025-11-30 12:00:01] INFO:     1.1.1.1:1 - "GET /b HTTP/1.1" 200 OK\n',
        b='[2025-11-30 12:00:03] INFO:     1.1.1.1:1 - "GET /c HTTP/1.1" 200 OK\n',
    )
    assert [event.fields["path"] for event in seen.events] == ["/c", "/a", "/b"]  # b's clock jumped back in a
    assert [event.order for event in seen.events] == [1, 2, 3]


def test_new_year_in_stamps_without_a_year(read):
    seen = read(
        a="\n".join(
            f'INFO {stamp} [x.py:1] "GET /{n} HTTP/1.1" 200'
            for n, stamp in enumerate(["12-31 23:59:59", "01-01 00:00:01"])
        ),
        b='INFO 12-31 23:59:58 [x.py:1] "GET /first HTTP/1.1" 200',
    )
    assert [event.fields["path"] for event in seen.events] == ["/first", "/0", "/1"]


def test_interleaved_ranks_have_their_own_tracebacks():
    frames = ["Traceback (most recent call last):", '  File "m.py", line 1, in {}', "    x()", "RuntimeError: {}"]
    lines = [f"[rank{rank}]: {frame.format(f'f{rank}')}" for frame in frames for rank in (0, 1)]
    scanner = LogScanner(None)
    found = [event for line in lines for event in scanner.feed(line)]
    assert [(event.fields["message"], event.fields["functions"]) for event in found] == [("f0", "f0"), ("f1", "f1")]


def test_source_code_in_a_traceback_is_not_taken_for_a_message():
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        '    raise ValueError("CUDA out of memory. Tried to allocate 1.00 GiB")',
        "ValueError: x",
    ]
    scanner = LogScanner("vllm")
    assert [event.name for line in lines for event in scanner.feed(line)] == ["traceback"]


def test_counts_of_a_long_log_are_exact():
    reader = LogReader(LogScanner("vllm", "s"))
    lines = []
    for number in range(30_000):
        lines.append(ACCESS.format(number % 250, number % 1000, 500 if number % 100 == 7 else 200))
        if number % 2:
            lines.append(VLLM.format(number % 60, number / 10, number % 50))
    for start in range(0, len(lines), 1000):
        reader.feed(lines[start : start + 1000])
    artefact = reader.artefact()
    access = [event for event in artefact.events if event.name == "http_access"]
    stats = [event for event in artefact.events if event.name == "stats_line"]
    assert sum(event.repeat for event in access) == 30_000
    assert sum(event.repeat for event in access if event.fields["code"] == 500) == 300
    assert sum(event.repeat for event in stats) == 15_000
    assert len(access) < 9_000 and len(stats) < 9_000 and artefact.unparsed == 0
    assert (stats[-1].fields["running"], stats[-1].source) == (49, "s:45000")
    assert [event.order for event in artefact.events] == sorted(event.order for event in artefact.events)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=200))
def test_thinning_keeps_counts_and_totals(rows):
    thinner = Thinner(keep=5, cells=4)
    for order, (kind, count) in enumerate(rows, start=1):
        thinner.add(Event("preempted", order, {"mode": kind, "count": count}))
    kept = thinner.events()
    for kind in "ab":
        mine = [event for event in kept if event.fields["mode"] == kind]
        assert sum(event.repeat for event in mine) == sum(1 for name, _ in rows if name == kind)
        total = sum(event.fields["count"] * event.repeat for event in mine)
        assert total == pytest.approx(sum(count for name, count in rows if name == kind))


def test_an_empty_artefact_says_nothing():
    assert Artefact().events == [] and Artefact().system is None


def test_several_scrapes_become_series(read):
    later = METRICS.replace(" 7.0", " 19.0")
    seen = read(m=f"# 12:00:00\n{METRICS}\n# 12:00:20\n{later}\n")
    series = next(one for one in seen.series if one.name == "llm_preemptions_total")
    assert (list(series.values), series.times[1] - series.times[0]) == ([7.0, 19.0], 20.0)
    assert seen.facts["metrics.seconds"].value == 20.0
    assert seen.facts["metrics.llm_preemptions_total.first"].value == 7.0


def test_samples_with_their_own_times(read):
    rows = "".join(f'container_memory_rss{{pod="a"}} {6e9 + n * 1e8} {1780185600000 + n * 60000}\n' for n in range(5))
    seen = read(m="# TYPE container_memory_rss gauge\n" + rows)
    assert seen.series[0].name == "proc_resident_memory_bytes" and len(seen.series[0].times) == 5
    assert seen.facts["metrics.seconds"].value == 240.0
