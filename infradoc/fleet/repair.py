"""Plan, apply and undo for whoever sits before a screen: what `infradoc fix` does, in the calling thread, stoppable.

Permissions, cooldown, journal, verification and the way back are those of infradoc.remediation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.model import Plan, PlanStep
from infradoc.monitor.loop import Monitor, Tick
from infradoc.remediation.change import take_back
from infradoc.remediation.journal import ChangeRecord
from infradoc.remediation.run import Fixer, Outcome, Stage, Timing
from infradoc.remediation.session import Session
from infradoc.remediation.table import change_of
from infradoc_rules.model import Finding


class Stopped(InfradocError):
    """The repair was stopped from outside; what was changed has been taken back."""


@dataclass(frozen=True, slots=True)
class Options:
    """Seconds to measure before and after a change; None: what the rule says."""

    baseline: float | None = None
    hold: float | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for one finding. `live`: the first step can be applied to this server now."""

    plan: Plan
    system: str | None
    live: bool

    @property
    def first(self) -> PlanStep | None:
        """The step that would be applied."""
        return self.plan.steps[0] if self.live and self.plan.steps else None


class Repair:
    """Work on one finding of one target. Every method may take long: call it in a thread of its own."""

    def __init__(
        self, spec: str, config: Config, finding: str, lang: str = "en", options: Options | None = None
    ) -> None:
        self.spec, self.finding = spec, finding
        self._config, self._lang = config, lang
        self._options = options or Options()
        self._stop = threading.Event()

    def stop(self) -> None:
        """End a run at its next look; a change that is in force is taken back first."""
        self._stop.set()

    def plan(self, findings: Sequence[Finding]) -> Planned:
        """What would be done for the finding among `findings`. Raises InfradocError when the server cannot be asked."""
        with Session(self.spec, self._config, lang=self._lang) as session:
            return self._planned(session, findings)

    def _planned(self, session: Session, findings: Sequence[Finding]) -> Planned:
        session.look()  # says which engine it is, and which run of it
        plan = session.plan(findings, self.finding)
        return Planned(plan, session.system, session.system == "infradoc" and bool(plan.steps))

    def run(
        self,
        step: PlanStep,
        findings: Sequence[Finding],
        say: Callable[[str], None],
        on_stage: Callable[[Stage], None] | None = None,
    ) -> Outcome:
        """Apply the step that a person has agreed to, verify it, and take it back when it is no better.

        Raises InfradocError when the plan is another by now or the engine refuses, Stopped after `stop()`.
        """
        with Session(self.spec, self._config, lang=self._lang) as session:
            first = self._planned(session, findings).first
            if first is None or change_of(first) != change_of(step):
                raise InfradocError("The plan is another by now: nothing was changed.", "Look at the new plan first.")
            rule = session.rule(step.finding)
            timing = Timing.of(rule.verify)
            given = {"baseline": self._options.baseline, "hold": self._options.hold}
            timing = replace(timing, **{name: value for name, value in given.items() if value is not None})
            watcher = _Stoppable(session.monitor, self._stop)
            fixer = Fixer(watcher, session.admin, session.journal, session.clients, timing, say, self._lang, on_stage)
            return fixer.run(rule, first)

    def undo(self) -> str:
        """Take the newest change back; returns one sentence. Raises InfradocError when there is none or it cannot."""
        with Session(self.spec, self._config, lang=self._lang) as session:
            change = last_setting(session.journal.changes(session.url))
            if change is None:
                raise InfradocError(f"There is no change to take back on {session.url}.")
            return take_back(session.admin, session.journal, change, self._lang)


class _Stoppable:
    """A monitor that ends the run at the next look when it was asked to."""

    def __init__(self, monitor: Monitor, stop: threading.Event) -> None:
        self._monitor, self._asked = monitor, stop

    def tick(self, now: float) -> Tick:
        """Look once. Raises Stopped."""
        if self._asked.is_set():
            raise Stopped("Stopped before the verdict.")
        return self._monitor.tick(now)


def last_setting(changes: Sequence[ChangeRecord]) -> ChangeRecord | None:
    """The newest change in force that can be taken back; what was done once (defragment) cannot."""
    from infradoc.remediation.actions.all import ACTIONS
    from infradoc.remediation.actions.base import LiveAction

    def is_setting(change: ChangeRecord) -> bool:
        action = ACTIONS.get(change.intent.action)
        return not (isinstance(action, LiveAction) and action.call)

    return next((one for one in reversed(changes) if one.open and is_setting(one)), None)


__all__ = ["Options", "Outcome", "Planned", "Repair", "Stage", "Stopped", "last_setting"]
