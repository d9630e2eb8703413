"""The part of the finding's page that is about its plan: made at once, made again when its grounds moved, shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.fleet.model import View, Watched
from infradoc.fleet.repair import Planned, last_setting
from infradoc.fleet.steps import advised_step, shown_step
from infradoc.remediation.guard import Refusal
from infradoc.remediation.journal import ChangeRecord
from infradoc.remediation.table import change_of
from infradoc.tui import paint
from infradoc.tui.finding_text import plan_text, wait_text
from infradoc.tui.messages import PlanReady
from infradoc.tui.screens.base import DoctorScreen
from infradoc.tui.threads import post, spawn

_SETTLED_SECONDS = 10.0  # values of an advice move with each look: so long a plan stands before it follows them


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan was made from: whether the finding is there, the process, the newest change, and the advice."""

    is_there: bool
    started: float | None
    change: tuple[str, str] | None
    advice: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, state: Watched, finding: str) -> Basis:
        """The basis as of a look."""
        present = next((one for one in state.findings if one["id"] == finding), None)
        newest = state.changes[-1] if state.changes else None
        return cls(
            present is not None,
            state.started,
            None if newest is None else (newest.intent.change, newest.last.kind),
            () if present is None else tuple((str(one["knob"]), one["to"]) for one in present["actions"]),
        )

    def must(self, other: Basis | None) -> bool:
        """Whether a plan made from `other` is wrong now, whatever figures moved."""
        return other is None or (self.is_there, self.started, self.change) != (
            other.is_there,
            other.started,
            other.change,
        )


class PlanScreen(DoctorScreen):
    """Keeps the plan for one finding. Needs `#left` that scrolls and `#plan` in it."""

    def __init__(self, view: View, finding: str) -> None:
        super().__init__()
        self.view, self.finding_id, self.spec = view, finding, view.spec
        self.finding: Mapping[str, Any] | None = None
        self.planned: Planned | None = None
        self._planning = False
        self._plan_error = ""
        self._planned_for: Basis | None = None
        self._planned_at = 0.0
        self._state: Watched | None = None

    def _gone(self, state: Watched) -> str:
        """Why the finding is not among those that hold."""
        out_of_sight = state.error if self.view.url and not state.up else ""
        return f"{self.doctor.say['unseen']} {out_of_sight}" if out_of_sight else self.doctor.say["gone"]

    def _fitted(self, text: Text) -> Text:
        """Broken into rows as wide as the page, each as far in as its paragraph; Chinese between its characters."""
        width = self.query_one("#left", VerticalScroll).scrollable_content_region.width
        return paint.broken(text, width) if width > 0 else text

    def _keep_plan(self, state: Watched) -> None:
        """Plan again when something that a plan depends on is another by now."""
        if self.doctor.is_paused or self.doctor.repairs.running(self.view.spec):
            return
        basis, now = Basis.of(state, self.finding_id), time.time()
        is_due = now - self._planned_at > _SETTLED_SECONDS and basis != self._planned_for
        if is_due or basis.must(self._planned_for) or any(until <= now for until in self._waits):
            self.action_plan()

    @property
    def _waits(self) -> list[float]:
        """When refusals of the plan end that time alone ends (Unix seconds)."""
        refused = self.planned.plan.refused if self.planned is not None else ()
        return [reason.until for _, reason in refused if isinstance(reason, Refusal)]

    def _show_plan(self) -> None:
        say, lang = self.doctor.say, self.doctor.lang
        text = Text(f"\n{say['plan']}\n", style="bold underline")
        if self._planning:
            text.append(say["planning"], style="not bold not underline dim")
        elif self._plan_error:
            text.append(paint.one_line(self._plan_error), style="not bold not underline red")
        body = Text()
        if self.planned is not None:
            plan = self.planned.plan
            body = plan_text([shown_step(step, lang) for step in plan.steps], plan.refused, say, time.time())
        elif self.finding is not None and not self._planning:
            body = plan_text([advised_step(part, lang) for part in self.finding["actions"]], (), say)
        is_free = self.can_apply and not self.doctor.repairs.running(self.view.spec)
        end = say["press_apply"] if is_free else self._why_not()
        made = Text.assemble(text, "\n" if len(text) > len(say["plan"]) + 2 else "", body)
        if not self._planning:
            made.append(end, style="bold" if self.can_apply else "dim")
        self.query_one("#plan", Static).update(self._fitted(made))
        self.show_stage()

    def advice(self) -> str:
        """The change that `a` makes, or why there is none: in sight also where the plan is not."""
        if self._planning or not self.view.url:
            return ""
        step = self.planned.first if self.planned is not None else None
        if step is None:
            return self._why_not()
        return self.doctor.say["a_applies"].format(change=change_of(step, self.doctor.lang))

    def _why_not(self) -> str:
        """Why nothing can be applied now, and until when where time alone stands against it."""
        say = self.doctor.say
        if not self.view.url:
            return say["not_on_recording"]
        if self.doctor.repairs.running(self.view.spec):
            return say["running_fix"]
        if self._planned_for is not None and not self._planned_for.is_there:
            last = last_setting(self.view.state.changes_in_force)
            undo = say["u_undoes"].format(change=moves_back(last)) if last is not None else ""
            return f"{self._gone(self.view.state)} {undo}".strip()
        if self.planned is None:
            return say["cannot_apply"]
        if not self.planned.live and self.planned.plan.steps:
            return say["with_its_flag"]
        return wait_text(self.planned.plan.refused, time.time(), say) or say["cannot_apply"]

    @property
    def can_apply(self) -> bool:
        """Whether there is a step that this server takes now."""
        return self.planned is not None and self.planned.first is not None

    def action_plan(self) -> None:
        """Ask the engine what it would take."""
        if not self.view.url or self._planning:
            return
        self._planning = True
        self._planned_at = time.time()
        self._planned_for = Basis.of(self._state or self.view.state, self.finding_id)
        spawn(self._plan, "plan")

    def _plan(self) -> None:
        repair = self.doctor.repairs.repair(self.view.spec, self.finding_id)
        try:
            post(self, PlanReady(repair.plan(self.view.findings)))
        except InfradocError as error:
            post(self, PlanReady(None, in_language(str(error), self.doctor.lang)))
        except Exception as error:
            post(self, PlanReady(None, self.doctor.say["trouble"].format(text=f"{type(error).__name__}: {error}")))

    def on_plan_ready(self, message: PlanReady) -> None:
        """Show the plan."""
        self._planning = False
        self.planned, self._plan_error = message.planned, message.error
        self._show_plan()


def moves_back(change: ChangeRecord) -> str:
    """What taking a change back would set."""
    return ", ".join(paint.one_line(f"{knob}: {new} -> {old}") for knob, old, new in change.last.moves)
