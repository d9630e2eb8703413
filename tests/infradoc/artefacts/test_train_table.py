"""Tables that compare training runs."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.train_table import TrainTableKind
from infradoc.artefacts.model import Segment

KIND = TrainTableKind()


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "runs.md")


def test_runs_named_in_the_first_cell(read):
    rows = ["| Config | s/iter | samples/s |", "|---|---|---|", "| grad_accum_iter=1 | 110.2 | 9.3 |"]
    found = read([*rows, "| grad_accum_iter=4 | **430.6** | 9.5 |"]).events
    assert [dict(event.fields) for event in found] == [
        {"accumulation": 1, "seconds": 110.2, "samples_rate": 9.3},
        {"accumulation": 4, "seconds": 430.6, "samples_rate": 9.5},
    ]


def test_a_column_of_its_own_and_milliseconds(read):
    found = read(["| GAS | step time (ms) | loss |", "| --- | --- | --- |", "| 2 | 800 | 2.1 |", "| 8 | 3100 | 8.3 |"])
    assert [(e.fields["accumulation"], e.fields["seconds"], e.fields["loss"]) for e in found.events] == [
        (2, 0.8, 2.1),
        (8, 3.1, 8.3),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["| Task | Value |", "| --- | --- |", "| gsm8k | 0.71 |"],
        ["| Config | s/iter |", "| --- | --- |", "| accum=4 | 4.0 |", "| accum=4 | 4.1 |"],  # one run
        ["| Config | memory |", "| accum=1 | 40 |", "| accum=4 | 44 |"],
    ],
)
def test_other_tables_are_left_alone(lines):
    assert KIND.spans(lines) == []


@given(st.lists(st.text(alphabet="| accum=14GS/itertme-loss.", max_size=40), max_size=12))
def test_any_text_is_survived(lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)


@pytest.mark.parametrize("mark", ["\t", " | "])
def test_what_a_notebook_shows(read, mark):
    rows = [("Step", "Training Loss", "Validation Loss"), ("100", "8.910000", "1.113210"), ("200", "No log", "1.05")]
    found = read([mark.join(row) for row in rows]).events
    assert [(event.name, event.fields["step"], event.fields["loss"]) for event in found] == [
        ("train_step", 100, 8.91),
        ("eval_loss", 100, 1.11321),
        ("eval_loss", 200, 1.05),
    ]


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        (["2 nodes. accum_steps=1: 0.52 s/step; accum_steps=8: 4.15 s/step"], [(1, 0.52), (8, 4.15)]),
        (["grad acc 1: 500 ms per step", "grad acc 16: 6500 ms per step"], [(1, 0.5), (16, 6.5)]),
    ],
)
def test_runs_in_a_sentence(read, lines, runs):
    assert KIND.spans(lines) == [(0, len(lines))]
    events = read(lines).events
    assert [(e.fields["accumulation"], e.fields["seconds"]) for e in events] == runs


def test_losses_in_a_sentence(read):
    events = read(["gradient_accumulation_steps=1 -> loss 1.2; gradient_accumulation_steps=16 -> loss 19.1"]).events
    assert [(e.fields["accumulation"], e.fields["loss"]) for e in events] == [(1, 1.2), (16, 19.1)]


def test_one_run_is_no_comparison():
    assert KIND.spans(["gradient_accumulation_steps=8: 4.15 s/step", "per_device_train_batch_size=2"]) == []


def test_times_in_front_of_what_they_belong_to():
    line = "per step: 9.9 s with accumulate_grad_batches=8, 1.24 s with accumulate_grad_batches=1, on 4 nodes"
    kind = TrainTableKind()
    assert kind.spans([line]) == [(0, 1)]
    events = kind.read(Segment("train_table", "notes", 1, [line])).events
    assert [(event.fields["accumulation"], event.fields["seconds"]) for event in events] == [(8, 9.9), (1, 1.24)]
