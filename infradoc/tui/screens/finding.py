"""One finding: evidence, chain, falsifier, plan as a diff; apply, watch the verdict, undo; the runbook beside it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Markdown, Static

import infradoc_playbooks
from infradoc.errors import InfradocError
from infradoc.fleet.model import View, Watched
from infradoc.fleet.repair import Planned, last_setting
from infradoc.fleet.steps import advised_step, shown_step
from infradoc.tui import paint
from infradoc.tui.finding_text import finding_text, plan_text
from infradoc.tui.messages import PlanReady
from infradoc.tui.screens.base import DoctorScreen, Job
from infradoc.tui.screens.dialogs import Confirm
from infradoc.tui.threads import post, spawn
from infradoc.tui.widgets.bars import TopBar

_WIDE = 100  # from here on the runbook stands beside the finding


class FindingScreen(DoctorScreen):
    """Keeps the finding as it was last seen when it is there no more, and says so."""

    KEYS = (
        ("Esc", "k_back"),
        ("a", "k_apply"),
        ("u", "k_undo"),
        ("r", "k_plan"),
        ("b", "k_book"),
        ("p", "k_pause"),
        ("e", "k_export"),
        ("?", "k_help"),
        ("q", "k_quit"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("a", "apply", "Apply"),
        Binding("u", "undo", "Undo"),
        Binding("r", "plan", "Plan anew"),
        Binding("b", "book", "Runbook"),
    ]

    def __init__(self, view: View, finding: str) -> None:
        super().__init__()
        self.view, self.finding_id = view, finding
        self.finding: Mapping[str, Any] | None = None
        self.planned: Planned | None = None
        self._planning = False
        self._plan_error = ""
        self._book: bool | None = None

    def body(self) -> ComposeResult:
        """Left what was found and what to do, right the runbook."""
        with Horizontal(id="halves"):
            with VerticalScroll(id="left"):
                yield Static(id="finding", markup=False)
                yield Static(id="plan", markup=False)
                yield Static(id="progress", markup=False)
            with VerticalScroll(id="book"):
                yield Markdown(self._playbook(), id="playbook", open_links=False)

    def _playbook(self) -> str:
        try:
            return infradoc_playbooks.get(self.finding_id, self.doctor.lang)
        except infradoc_playbooks.PlaybookError as error:
            return str(error)

    def on_mount(self) -> None:
        """Plan at once."""
        super().on_mount()
        self.set_focus(self.query_one("#left"))
        self.action_plan()
        self.show_progress()

    def on_resize(self, event: Any) -> None:
        """The runbook needs room beside the finding, unless it is asked for."""
        super().on_resize(event)
        shown = event.size.width >= _WIDE if self._book is None else self._book
        self.query_one("#book").display = shown
        self.query_one("#left").display = event.size.width >= _WIDE or not shown

    # --- data --------

    def job(self) -> Job:
        """The target's state."""
        return partial(self.doctor.state_of, self.view)

    def apply(self, result: Any) -> None:
        """Show the finding as it is now."""
        state: Watched = result
        say = self.doctor.say
        present = next((one for one in state.findings if one["id"] == self.finding_id), None)
        if present is not None:
            self.finding = present
        text = Text()
        if present is None:
            text.append(say["gone"] + "\n\n", style="bold green")
        if self.finding is not None:
            text.append(finding_text(self.finding, state.findings, say))
        self.query_one("#finding", Static).update(text)
        self._show_plan()
        self.query_one(TopBar).say(f"{state.name}  {self.finding_id}", self.doctor.time_text(self.view))

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
            body = plan_text([shown_step(step, lang) for step in plan.steps], plan.refused, say)
        elif self.finding is not None and not self._planning:
            body = plan_text([advised_step(part, lang) for part in self.finding["actions"]], (), say)
        end = say["press_apply"] if self.can_apply else say["not_on_recording" if not self.view.url else "cannot_apply"]
        made = Text.assemble(text, "\n" if len(text) > len(say["plan"]) + 2 else "", body)
        if not self._planning:
            made.append(end, style="bold" if self.can_apply else "dim")
        self.query_one("#plan", Static).update(made)

    # --- plan --------

    @property
    def can_apply(self) -> bool:
        """Whether there is a step that this server takes now."""
        return self.planned is not None and self.planned.first is not None

    def action_plan(self) -> None:
        """Ask the engine what it would take."""
        if not self.view.url or self._planning:
            return
        self._planning, self._plan_error = True, ""
        spawn(self._plan, "plan")

    def _plan(self) -> None:
        repair = self.doctor.repairs.repair(self.view.spec, self.finding_id)
        try:
            post(self, PlanReady(repair.plan(self.view.findings)))
        except InfradocError as error:
            post(self, PlanReady(None, str(error)))
        except Exception as error:
            post(self, PlanReady(None, f"{type(error).__name__}: {error}"))

    def on_plan_ready(self, message: PlanReady) -> None:
        """Show the plan."""
        self._planning = False
        self.planned, self._plan_error = message.planned, message.error
        self._show_plan()

    # --- apply and undo --------

    def action_apply(self) -> None:
        """Ask for the word, then carry the first step out."""
        say, step = self.doctor.say, self.planned.first if self.planned is not None else None
        if self.doctor.repairs.running(self.view.spec):
            self.doctor.tell(say["running_fix"])
        elif step is None:
            self.doctor.tell(say["not_on_recording" if not self.view.url else "cannot_apply"])
        else:
            body = plan_text([shown_step(step, self.doctor.lang)], (), say)
            question = say["confirm_apply"].format(url=self.view.url)
            findings = self.view.findings

            def answer(yes: bool | None) -> None:
                if yes:
                    self.doctor.repairs.begin(self.view.spec, self.finding_id, step, findings)
                    self.show_progress()

            self.app.push_screen(Confirm(question, body, "apply", say), answer)

    def action_undo(self) -> None:
        """Ask for the word, then take the newest change back."""
        say = self.doctor.say
        if not self.view.url:
            self.doctor.tell(say["not_on_recording"])
            return
        if self.doctor.repairs.running(self.view.spec):
            self.doctor.tell(say["running_fix"])
            return
        last = last_setting(self.view.state.changes)
        if last is None:
            self.doctor.tell(say["nothing_to_undo"])
            return
        moves = "\n".join(f"{knob}: {new} -> {old}" for knob, old, new in last.last.moves)

        def answer(yes: bool | None) -> None:
            if yes:
                self.doctor.repairs.undo(self.view.spec, self.finding_id)
                self.show_progress()

        question = say["confirm_undo"].format(url=self.view.url)
        self.app.push_screen(Confirm(question, Text(paint.one_line(moves)), "undo", say), answer)

    def show_progress(self) -> None:
        """What the repair said, the newest in view."""
        run = self.doctor.repairs.get(self.view.spec)
        if run is None or not self.is_mounted:
            return
        text = Text(f"\n{self.doctor.say['progress']}\n", style="bold underline")
        for line in run.lines:
            style = "bold" if line and line == run.verdict else ""
            text.append(f"{paint.one_line(line)}\n", style=f"not bold not underline {style}")
        self.query_one("#progress", Static).update(text)
        self.query_one("#left", VerticalScroll).scroll_end(animate=False)

    def action_book(self) -> None:
        """Show or hide the runbook; on a narrow screen it takes the finding's place."""
        self._book = not self.query_one("#book").display
        self.query_one("#book").display = self._book
        self.query_one("#left").display = self.size.width >= _WIDE or not self._book
        self.set_focus(self.query_one("#book" if self._book else "#left"))

    def action_back(self) -> None:
        """To the target."""
        self.doctor.leave()
