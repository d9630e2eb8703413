"""What carrying out an action means: which value goes to which knob, who pays, and how it is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infradoc.remediation.admin import KnobState
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

    def target_value(self, action: Action, state: KnobState) -> Value:
        """The value to set. Raises ValueError with one sentence when the advice does not fit the engine."""
        value = action.to_value
        if value is None:
            raise ValueError(f"The advice for {self.knob} names no value.")
        if value == state.value:
            raise ValueError(f"{self.knob} is {value} already.")
        check_bounds(self.knob, value, state)
        check_direction(action, value, state)
        return value


@dataclass(frozen=True, slots=True)
class ManualAction:
    """An action outside the engine's live knobs: a restart, or something that clients or operators do."""

    name: str
    knob: str
    loser: str
    who: str  # who has to do what, completing a sentence


def further_values(action: Action, knobs: Mapping[str, KnobState]) -> dict[str, Value]:
    """The values of the action's other knobs that the engine does not have already.

    Raises ValueError with one sentence when the engine has no such knob, takes it only at a restart, or not this value.
    """
    wanted: dict[str, Value] = {}
    for name, value in action.also:
        state = knobs.get(name)
        if state is None:
            raise ValueError(f"The engine has no knob {name}.")
        if state.change not in ("live", "drain"):
            raise ValueError(f"The engine takes {name} only at a {state.change}: {state.flag}.")
        check_bounds(name, value, state)
        if value != state.value:
            wanted[name] = value
    return wanted


def check_bounds(knob: str, value: Value, state: KnobState) -> None:
    """Raises ValueError when `value` is outside what the engine accepts."""
    bounds = state.bounds
    if isinstance(value, bool | str):
        if bounds and value not in bounds:
            raise ValueError(f"{knob} cannot be {value}: the engine takes {', '.join(map(str, bounds))}.")
        return
    if len(bounds) == 2 and all(isinstance(b, int | float) for b in bounds):
        low, high = float(bounds[0]), float(bounds[1])
        if not low <= value <= high:
            raise ValueError(f"{knob} cannot be {value}: the engine takes {bounds[0]} to {bounds[1]}.")


def check_direction(action: Action, value: Value, state: KnobState) -> None:
    """Raises ValueError when the knob has moved since the advice was computed, so that it now points the wrong way."""
    now = state.value
    if isinstance(now, bool | str) or isinstance(value, bool | str) or now is None:
        return
    if action.change == "increase" and value < now:
        raise ValueError(f"{state.name} is {now} already, above the advised {value}.")
    if action.change == "decrease" and value > now:
        raise ValueError(f"{state.name} is {now} already, below the advised {value}.")


def by_name(*actions: LiveAction | ManualAction) -> Mapping[str, LiveAction | ManualAction]:
    """A table of actions by name."""
    return {action.name: action for action in actions}
