"""What a sizing function sees, and how it words an action."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise.flags import knob_flag, on_cpu, shown_values, with_direction, worded_flag
from infradoc_rules.conditions import read_value, times
from infradoc_rules.knobs import knob_table
from infradoc_rules.model import Action, SignalFrame, Value
from infradoc_rules.values import number
from infradoc_rules.versions import Running


@dataclass(frozen=True, slots=True)
class Advice:
    """One target's frame with the rule's thresholds, in the language asked for."""

    frame: SignalFrame
    thresholds: Mapping[str, float]
    lang: str = "en"

    @property
    def system(self) -> str | None:
        """The engine's name."""
        return self.frame.system

    def say(self, en: str, zh: str) -> str:
        """The text in the language asked for."""
        return zh if self.lang == "zh" else en

    @property
    def running(self) -> Running:
        """The engine, the versions that are known, and the device where it is known to be a CPU."""
        known = [self.fact(name) for name in ("target.version", "torch_version", "target.engine_api")]
        engine, torch, api = (None if value is None else str(value) for value in known)
        return Running(self.system, engine, torch, "cpu" if on_cpu(self.frame.facts) else None, api)

    def fact(self, name: str) -> Value | None:
        """A fact's value, None when it is not known."""
        fact = self.frame.facts.get(name)
        return None if fact is None else fact.value

    def number(self, name: str) -> float | None:
        """A fact as a finite number; None when it is not known or is none."""
        value = self.fact(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            return None
        return float(value)

    def hint(self, name: str) -> float | None:
        """What the engine tells about its room: `kv_bytes_per_token`, `free_memory_bytes`, `cores`, ..."""
        return self.number(f"hint.{name}")

    def last(self, event: str, field: str) -> float | None:
        """The number that the last event of that name carried; None when there is none."""
        for row in reversed(self.frame.events):
            value = number(row.fields.get(field)) if row.name == event else None
            if value is not None:
                return value
        return None

    def read(self, promql: str) -> float | None:
        """A finite PromQL value on the frame; None when there is none."""
        value = read_value(promql, self.frame, {**self.thresholds, **times(self.frame)})
        return value if value is not None and math.isfinite(value) else None

    def action(
        self,
        name: str,
        *,
        why: str,
        cost: str,
        from_value: Value | None = None,
        to_value: Value | None = None,
        flag: str | None = None,
    ) -> Action:
        """An action of the closed list with its knob, direction, risk, flag and whether it works while serving.

        `live` needs the engine to report the knob: an engine version without it cannot take the change.
        """
        spec = ACTIONS[name]
        knobs = knob_table()
        known = spec.knob in self.frame.facts
        flag = knob_flag(self, spec, to_value) if flag is None else worded_flag(self, spec, to_value, flag)
        flag = with_direction(self, spec, flag, to_value)
        from_value, to_value = shown_values(self, spec, flag, from_value, to_value)
        return Action(
            knob=spec.knob,
            change=spec.change,
            why=why,
            from_value=from_value,
            to_value=to_value,
            flag=flag,
            live=known and knobs.live(self.system, spec.knob),
            risk=spec.risk,
            cost=cost,
            name=name,
        )


def round_up(value: float, step: float) -> int:
    """The next multiple of `step` at or above `value`."""
    return math.ceil(value / step - 1e-9) * int(step)
