from __future__ import annotations

from collections.abc import Callable

import pytest

from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction
from infradoc.remediation.admin import EngineState
from infradoc_rules.actions import ACTIONS as SPECS
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action

Make = Callable[..., Action]


def test_the_list_is_closed() -> None:
    assert set(ACTIONS) == set(SPECS)


def test_each_action_moves_the_knob_of_its_spec() -> None:
    for name, action in ACTIONS.items():
        assert (action.name, action.knob) == (name, SPECS[name].knob)
        assert action.loser


def test_live_actions_are_live_in_the_knob_table() -> None:
    table = knob_table()
    for action in ACTIONS.values():
        if isinstance(action, LiveAction):
            assert table[action.knob].live == ("drain" if action.drains else "live"), action.name


def live(name: str) -> LiveAction:
    action = ACTIONS[name]
    assert isinstance(action, LiveAction)
    return action


def test_a_value_that_fits(make_action: Make, engine_state: EngineState) -> None:
    action = make_action("raise_kv_capacity", "kv_pool_tokens", "increase", 384, 1536)
    assert live("raise_kv_capacity").target_value(action, engine_state.knobs["kv_pool_tokens"]) == 1536


@pytest.mark.parametrize(
    ("name", "knob", "change", "to", "says"),
    [
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 384, "384 already"),
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 200, "above the advised"),
        ("lower_max_num_seqs", "max_num_seqs", "decrease", 20, "below the advised"),
        ("lower_max_num_seqs", "max_num_seqs", "decrease", 0, "takes 1 to 1024"),
        ("reject_long_prompts", "truncation_policy", "set", "throw", "takes reject, left"),
        ("set_tokenizer_workers", "tokenizer_workers", "increase", None, "names no value"),
    ],
)
def test_a_value_that_does_not_fit(
    make_action: Make, engine_state: EngineState, name: str, knob: str, change: str, to: object, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        live(name).target_value(make_action(name, knob, change, None, to), engine_state.knobs[knob])
