"""What carrying out an action means: which value goes to which knob, who pays, and how it is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infradoc.remediation.admin import KnobState
from infradoc.remediation.words import say
from infradoc_rules.model import Action, Value


@dataclass(frozen=True, slots=True)
class LiveAction:
    """An action that the bundled engine takes while requests run.

    `loser` names who pays for it. The old value comes back by the same way. `drains`: the knob changes by the same
    request, but the engine first lets what runs finish or sets it back; nothing is lost. `call`: an admin path
    that does something once instead of a setting; there is nothing to take back.
    """

    name: str
    knob: str
    loser: str
    drains: bool = False
    call: str = ""

    def target_value(self, action: Action, state: KnobState, lang: str = "en") -> Value:
        """The value to set. Raises ValueError with one sentence when the advice does not fit the engine."""
        value = action.to_value
        if value is None:
            raise ValueError(say(lang, "no_value", knob=self.knob))
        if value == state.value:
            raise ValueError(say(lang, "already", knob=self.knob, value=value))
        check_bounds(self.knob, value, state, lang)
        check_direction(action, value, state, lang)
        return value


@dataclass(frozen=True, slots=True)
class ManualAction:
    """An action outside the engine's live knobs: a restart, or something that clients or operators do."""

    name: str
    knob: str
    loser: str
    who: str  # the key in `words.TEXTS` of who has to do what


def further_values(action: Action, knobs: Mapping[str, KnobState], lang: str = "en") -> dict[str, Value]:
    """The values of the action's other knobs that the engine does not have already.

    Raises ValueError with one sentence when the engine has no such knob, takes it only at a restart, or not this value.
    """
    wanted: dict[str, Value] = {}
    for name, value in action.also:
        state = knobs.get(name)
        if state is None:
            raise ValueError(say(lang, "no_knob", knob=name))
        if state.change not in ("live", "drain"):
            raise ValueError(say(lang, only_at(state.change), knob=name, flag=state.flag))
        check_bounds(name, value, state, lang)
        if value != state.value:
            wanted[name] = value
    return wanted


def only_at(change: str) -> str:
    """The key in `words.TEXTS` of when the engine takes a knob."""
    return "only_at_drain" if change == "drain" else "only_at_restart"


def check_bounds(knob: str, value: Value, state: KnobState, lang: str = "en") -> None:
    """Raises ValueError when `value` is outside what the engine accepts."""
    bounds = state.bounds
    if isinstance(value, bool | str):
        if bounds and value not in bounds:
            choices = ", ".join(map(str, bounds))
            raise ValueError(say(lang, "not_a_choice", knob=knob, value=value, choices=choices))
        return
    if len(bounds) == 2 and all(isinstance(b, int | float) for b in bounds):
        low, high = float(bounds[0]), float(bounds[1])
        if not low <= value <= high:
            raise ValueError(say(lang, "out_of_bounds", knob=knob, value=value, low=bounds[0], high=bounds[1]))


def check_direction(action: Action, value: Value, state: KnobState, lang: str = "en") -> None:
    """Raises ValueError when the knob has moved since the advice was computed, so that it now points the wrong way."""
    now = state.value
    if isinstance(now, bool | str) or isinstance(value, bool | str) or now is None:
        return
    if action.change == "increase" and value < now:
        raise ValueError(say(lang, "above_already", knob=state.name, now=now, value=value))
    if action.change == "decrease" and value > now:
        raise ValueError(say(lang, "below_already", knob=state.name, now=now, value=value))


def by_name(*actions: LiveAction | ManualAction) -> Mapping[str, LiveAction | ManualAction]:
    """A table of actions by name."""
    return {action.name: action for action in actions}
