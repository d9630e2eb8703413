"""Lines that end at a column: said where it is certain, and no number of theirs is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.cut import MARK, Cut, cut_of
from infradoc.artefacts.gather import gather

STATS = (
    "INFO 11-29 20:34:{at} [loggers.py:248] Engine 000: Avg prompt throughput: 120.4 tokens/s, "
    "Avg generation throughput: 812.6 tokens/s, Running: 9 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 61.2%, Prefix cache hit rate: 12.0%"
)
LOG = [
    "INFO 11-29 20:34:30 [gpu_worker.py:298] Available KV cache memory: 1.68 GiB",
    *(STATS.format(at=at) for at in (31, 41, 51)),
    "ERROR 11-29 20:35:02 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 79.15 GiB of which 1.10 GiB is free. Process 2017 has 73.95 GiB memory in use. "
    "Of the allocated memory 67.02 GiB is allocated by PyTorch, and 9.05 GiB is reserved by PyTorch but unallocated.",
]


def _column(lines):
    found = cut_of(lines, lines)
    return found.width if found is not None else None


@pytest.mark.parametrize("width", [80, 100, 120, 132, 160, 200])
def test_the_column_is_found(width):
    assert _column([line[:width].rstrip() for line in LOG]) in (width, width - 1)


@pytest.mark.parametrize(
    "lines",
    [
        LOG,
        [line for line in LOG if "reserved" not in line],
        [f"[2025-04-15 12:0{n}:01 TP0] Decode batch. " + "x" * 100 + f" #queue-req: {n}" for n in range(9)],
        ["|" + " " * 98 + "|", "|  0  NVIDIA" + " " * 87 + "|"],
        ["=" * 80, "Loading weights"],
        ['vllm:num_requests_running{engine="0",model_name="' + "m" * 46 + '"} 4'],
    ],
)
def test_whole_lines_are_said_to_be_whole(lines):
    assert _column(lines) is None


def test_lines_that_were_broken_are_not_cut():
    assert _column([part for line in LOG for part in (line[:120], line[120:]) if part]) is None


def test_a_number_that_may_have_gone_on_is_none():
    width = STATS.format(at=31).index("812.6") + 2
    lines = [line[:width] for line in LOG]
    cut = Cut(width, False)
    assert [line[-24:] for line in cut.marked(lines, lines)[1:4]] == [f"generation throughput: {MARK}"] * 3
    assert cut.marked(lines, lines)[0] == LOG[0]


def test_a_flag_that_may_have_gone_on_is_none():
    lines = [
        "vllm serve org/model --host 0.0.0.0 --port 8000 --tensor-parallel-size 4 --max-m",
        LOG[1][:80],
        LOG[4][:80],
    ]
    cut = cut_of(lines, lines)
    assert cut is not None
    assert "--max" not in cut.marked(lines, lines)[0].replace("--max-model-len", "")


def test_the_report_says_so_and_tells_no_cause(write):
    gathered = gather(write(log="\n".join(line[:160] for line in LOG)))
    assert "column 160" in " ".join(gathered.notes.sentences())
    assert gathered.notes.gaps
    assert not [event for event in gathered.events if event.name == "cuda_oom"]


def test_a_page_of_metrics_without_its_values_is_not_added_up(write):
    page = [f'vllm:request_success_total{{engine="0",finished_reason="{why}",model_name="org/m"}} 7' for why in "abc"]
    page += ["# TYPE vllm:num_requests_running gauge", 'vllm:num_requests_running{engine="0"} 3']
    assert gather(write(metrics="\n".join(page))).series
    assert not gather(write(metrics="\n".join(line[:60] for line in page))).series


@given(st.lists(st.text(alphabet="ab=:,.0123 {}[]-…", max_size=140), max_size=30))
def test_no_line_is_lost_and_none_grows_by_more_than_the_mark(lines):
    cut = cut_of(lines, lines)
    marked = cut.marked(lines, lines) if cut is not None else lines
    assert len(marked) == len(lines)
    assert all(len(after) <= len(before) + 2 for before, after in zip(lines, marked, strict=True))
