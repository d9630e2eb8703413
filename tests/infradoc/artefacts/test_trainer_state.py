"""trainer_state.json: one run for each state object."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.trainer_state import TrainerStateKind

KIND = TrainerStateKind()


def state(batch, losses, indent=2):
    rows = [
        {"epoch": 0.1 * i, "loss": loss, "grad_norm": 1.0, "step": 10 * i} for i, loss in enumerate(losses, start=1)
    ]
    return json.dumps({"log_history": rows, "train_batch_size": batch}, indent=indent).splitlines()


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "s.json")


def test_steps_with_their_lines(read):
    found = read(state(2, [3.0, 2.5]))
    assert [e.name for e in found.events] == ["train_config", "train_step", "train_step"]
    assert found.events[0].fields == {"batch": 2}
    assert found.events[2].fields["loss"] == 2.5
    assert '"loss": 2.5' in state(2, [3.0, 2.5])[int(found.events[2].source.split(":")[1]) - 1]


def test_not_a_number_stays_visible(read):
    found = read(state(1, [float("nan")]))
    assert found.events[1].fields["loss"] == "nan"


def test_two_states_after_one_another_are_two_spans():
    one, two = state(1, [3.0]), state(8, [0.4])
    assert KIND.spans([*one, *two]) == [(0, len(one)), (len(one), len(one) + len(two))]


def test_one_line_is_enough():
    assert KIND.spans(state(1, [3.0], indent=None)) == [(0, 1)]


def test_evaluation_rows_and_other_json_are_left_out(read):
    rows = [{"eval_loss": 1.0, "step": 5}, {"loss": 2.0, "step": 10}, "text", None]
    found = read(json.dumps({"log_history": rows}).splitlines())
    assert [e.fields.get("step") for e in found.events if e.name == "train_step"] == [10]
    assert KIND.spans(['{"log_history": "none"}']) == []
    assert KIND.spans(['{"object": "list", "data": []}']) == []


@given(st.text(max_size=200))
def test_any_text_is_survived(read, text):
    lines = text.splitlines()
    KIND.spans(lines)
    read(lines)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["loss", "step", "log_history", "train_batch_size"]), inner)
        ),
        max_leaves=12,
    )
)
def test_any_value_as_history_is_survived(read, value):
    read(json.dumps({"log_history": [value], "train_batch_size": value}).splitlines())
