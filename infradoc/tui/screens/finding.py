"""One finding: evidence, chain, falsifier, plan as a diff; apply, watch the verdict, undo; the runbook beside it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Markdown, Static

import infradoc_playbooks
from infradoc.fleet.model import View, Watched
from infradoc.fleet.repair import last_setting
from infradoc.fleet.steps import shown_step
from infradoc.tui import paint
from infradoc.tui.finding_text import finding_text, plan_text
from infradoc.tui.screens.base import Job
from infradoc.tui.screens.dialogs import Confirm
from infradoc.tui.screens.planned import PlanScreen, moves_back

_WIDE = 100  # from here on the runbook stands beside the finding


class FindingScreen(PlanScreen):
    """Keeps the finding as it was last seen when it is there no more, and says so."""

    KEYS = (
        ("Esc", "k_back", "back"),
        ("a", "k_apply", "apply"),
        ("u", "k_undo", "undo"),
        ("r", "k_plan", "plan"),
        ("v", "k_evidence", "evidence"),
        ("b", "k_book", "book"),
        ("p", "k_pause", "app.pause"),
        ("e", "k_export", "app.export"),
        ("?", "k_help", "app.help"),
        ("q", "k_quit", "app.quit_safely"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("a", "apply", "Apply"),
        Binding("u", "undo", "Undo"),
        Binding("r", "plan", "Plan anew"),
        Binding("v", "evidence", "All evidence"),
        Binding("b", "book", "Runbook"),
    ]

    def __init__(self, view: View, finding: str) -> None:
        super().__init__(view, finding)
        self._unfolded = False
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
        self.call_after_refresh(self.show_progress, False)

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
            text.append(self._gone(state) + "\n\n", style="bold")
        if self.finding is not None:
            text.append(finding_text(self.finding, state.findings, say, self._unfolded))
        self.query_one("#finding", Static).update(self._fitted(text))
        self._state = state
        self._keep_plan(state)
        self._show_plan()
        self.say_top(f"{state.name}  {self.finding_id}", self.doctor.time_text(self.view))

    # --- apply and undo --------

    def action_apply(self) -> None:
        """Ask for the word, then carry the first step out."""
        say, step = self.doctor.say, self.planned.first if self.planned is not None else None
        if self.doctor.repairs.running(self.view.spec):
            self.doctor.tell(say["running_fix"])
        elif step is None:
            self.doctor.tell(self._why_not())
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
        state = self.view.state
        last = last_setting(state.changes_in_force)
        if last is None:
            self.doctor.tell(say["restarted_since" if last_setting(state.changes) is not None else "nothing_to_undo"])
            return
        moves = Text(moves_back(last))

        def answer(yes: bool | None) -> None:
            if yes:
                self.doctor.repairs.undo(self.view.spec, self.finding_id)
                self.show_progress()

        question = say["confirm_undo"].format(url=self.view.url)
        self.app.push_screen(Confirm(question, moves, "undo", say), answer)

    def show_progress(self, follow: bool = True) -> None:
        """What the repair said; `follow`: the newest in view."""
        run = self.doctor.repairs.get(self.view.spec)
        if run is None or not self.is_mounted:
            return
        text = Text(f"\n{self.doctor.say['progress']}\n", style="bold underline")
        for line in run.lines:
            style = "bold" if line and line == run.verdict else ""
            text.append(f"{paint.one_line(line)}\n", style=f"not bold not underline {style}")
        self.query_one("#progress", Static).update(self._fitted(text))
        if follow or not run.ended:
            self.query_one("#left", VerticalScroll).scroll_end(animate=False)

    def action_evidence(self) -> None:
        """All evidence, or the strongest."""
        self._unfolded = not self._unfolded
        if self._state is not None:
            self.apply(self._state)

    def action_book(self) -> None:
        """Show or hide the runbook; on a narrow screen it takes the finding's place."""
        self._book = not self.query_one("#book").display
        self.query_one("#book").display = self._book
        self.query_one("#left").display = self.size.width >= _WIDE or not self._book
        self.set_focus(self.query_one("#book" if self._book else "#left"))

    def action_back(self) -> None:
        """To the target."""
        self.doctor.leave()
