"""Apply and undo as far as no engine is needed: the word, what is said, and leaving in the middle."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Input, Static

from infradoc.errors import InfradocError
from infradoc.fleet.repair import Planned, Stage, Stopped
from infradoc.model import Plan, PlanStep, Verdict
from infradoc.remediation.guard import Refusal
from infradoc.remediation.journal import ChangeRecord, intent, record
from infradoc.remediation.measure import ClientMeasured
from infradoc.remediation.run import Outcome
from infradoc.tui.app import DoctorApp
from infradoc.tui.repairs import Run
from infradoc.tui.screens.dialogs import Confirm
from infradoc.tui.screens.finding import FindingScreen
from infradoc_rules.model import Action

STEP = PlanStep(
    "kv-thrashing-preemption",
    Action("max_num_seqs", "decrease", "fewer at once", 16, 8, "--max-num-seqs 8", True, name="lower_max_num_seqs"),
    16,
)


class Scripted:
    """Stands for infradoc.fleet.repair.Repair: a run lasts until it is stopped or let go."""

    def __init__(self) -> None:
        self.asked, self.let_go, self.stopped = threading.Event(), threading.Event(), threading.Event()
        self.error: InfradocError | None = None
        self.plans = 0
        self.refused: tuple[tuple[str, str], ...] = ()

    def plan(self, findings: Sequence[Any]) -> Planned:
        self.plans += 1
        if self.refused:
            return Planned(Plan("t", (), self.refused), "infradoc", False)
        return Planned(Plan("t", (STEP,), (("kv_cache_dtype", "Not a live change [/]."),)), "infradoc", True)

    def run(self, step: PlanStep, findings: Sequence[Any], say: Callable[[str], None], on_stage: Any = None) -> Any:
        say("baseline: measuring [bold]1[/bold] s")
        if on_stage is not None:
            on_stage(Stage("stage_hold", 900.0))
        self.asked.set()
        while not self.let_go.wait(0.01):
            if self.stopped.is_set():
                say("max_num_seqs is 16 again.")
                raise Stopped("Stopped before the verdict.")
        raise self.error or InfradocError("The engine went away.", "Start it.")

    def undo(self) -> str:
        return "max_num_seqs is 16 again."

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def scripted(make_app: Callable[..., DoctorApp], monkeypatch: pytest.MonkeyPatch) -> tuple[DoctorApp, Scripted]:
    app, script = make_app(), Scripted()
    (view,) = app.views
    monkeypatch.setattr(type(view), "url", "http://127.0.0.1:1")
    monkeypatch.setattr(app.repairs, "repair", lambda spec, finding: script)
    return app, script


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def text_of(app: DoctorApp, name: str) -> str:
    return str(app.screen.query_one(name, Static).render())


def change(kind: Any, started: float | None = None) -> ChangeRecord:
    entry = replace(intent("http://127.0.0.1:1", STEP, 16, 8, "me"), started=started)
    return record([entry, replace(entry, kind=kind)])


async def to_the_finding(app: DoctorApp, pilot: Any, settle: Any) -> None:
    await settle(pilot)
    await pilot.press("f", "enter")
    await settle(pilot)
    await until(lambda: "Press a to apply" in text_of(app, "#plan"))


def test_only_the_typed_word_applies(scripted: tuple[DoctorApp, Scripted], settle: Any) -> None:
    app, script = scripted

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            plan = text_of(app, "#plan")
            assert "- max_num_seqs = 16" in plan and "+ max_num_seqs = 8" in plan
            assert "left out: kv_cache_dtype: Not a live change [/]." in plan
            await pilot.press("a", "y", "enter")
            assert isinstance(app.screen, Confirm) and not script.asked.is_set()
            assert app.screen.query_one(Input).value == ""
            await pilot.press("escape")
            assert isinstance(app.screen, FindingScreen) and not script.asked.is_set()
            await pilot.press("a", *"apply", "enter")
            await until(script.asked.is_set)
            await until(lambda: "measuring [bold]1[/bold] s" in text_of(app, "#progress"))
            await pilot.press("a")  # one at a time
            assert isinstance(app.screen, FindingScreen)
            script.let_go.set()
            await until(lambda: "The engine went away. Start it." in text_of(app, "#progress"))
            assert not app.repairs.under_way

    asyncio.run(run())


def test_quitting_in_the_middle_asks_and_takes_the_change_back(
    scripted: tuple[DoctorApp, Scripted], settle: Any
) -> None:
    app, script = scripted

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            await pilot.press("a", *"apply", "enter")
            await until(script.asked.is_set)
            await pilot.press("q")
            assert isinstance(app.screen, Confirm) and "take the change back" in str(
                app.screen.query(Static)[0].render()
            )
            await pilot.press("escape")
            assert not script.stopped.is_set() and app.is_running
            await pilot.press("q", *"quit", "enter")
            await until(lambda: not app.is_running or app._exit)
            assert script.stopped.is_set()

    asyncio.run(run())
    assert app.repairs.get(app.views[0].spec).lines[-2:] == ["max_num_seqs is 16 again.", "Stopped before the verdict."]


def test_a_screen_that_dies_stops_the_repair(scripted: tuple[DoctorApp, Scripted], settle: Any) -> None:
    app, script = scripted

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            await pilot.press("a", *"apply", "enter")
            await until(script.asked.is_set)
            app.exit()

    asyncio.run(run())
    assert script.stopped.wait(5)


def test_undo_asks_for_its_word(
    scripted: tuple[DoctorApp, Scripted], settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = scripted
    (view,) = app.views
    state = replace(view.state, changes=(change("applied"),))
    monkeypatch.setattr(type(view), "state", state)

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            await pilot.press("u")
            assert isinstance(app.screen, Confirm)
            assert any("max_num_seqs: 8 -> 16" in str(one.render()) for one in app.screen.query(Static))
            await pilot.press(*"undo", "enter")
            await until(lambda: "max_num_seqs is 16 again." in text_of(app, "#progress"))

    asyncio.run(run())


@pytest.mark.parametrize(("lang", "told"), [("en", "verdict: not_fixed"), ("zh", "结论：未修复（not_fixed）")])
def test_the_verdict_is_told_first_and_in_the_language_of_the_screen(lang: str, told: str) -> None:
    window = ClientMeasured([], 0, 1)
    outcome = Outcome(Verdict("not_fixed", (), "because"), window, window, None, 1.0, True, False, "note")

    class Judged(Scripted):
        def run(self, *given: Any) -> Outcome:
            return outcome

    lines: list[str] = []
    repair: Any = Judged()
    run = Run("t", repair)
    run.carry_out(STEP, (), lang, lambda text, ended: lines.append(text))
    assert lines[0] == told == run.verdict and "note" in "".join(lines[1:])


def test_what_a_fix_waits_for_stays_in_sight_with_the_time_left(
    scripted: tuple[DoctorApp, Scripted], settle: Any
) -> None:
    app, script = scripted

    async def run() -> None:
        async with app.run_test(size=(100, 24)) as pilot:
            await to_the_finding(app, pilot, settle)
            assert "a applies: max_num_seqs 16 -> 8" in text_of(app, "#stage")
            await pilot.press("a", *"apply", "enter")
            await until(
                lambda: re.search(r"hold: measuring after the change: 900 s left", text_of(app, "#stage")) is not None
            )
            app.repairs.get(app.views[0].spec).until -= 500
            app.screen.tick()
            assert re.search(r"(400|399) s left of at most 900 s", text_of(app, "#stage"))
            await pilot.press("escape")
            await settle(pilot)
            assert "s left of at most" in text_of(app, "#stage")  # on the target's screen too
            await pilot.press("escape")
            await settle(pilot)
            assert "s left of at most" in text_of(app, "#stage") and app.views[0].spec in text_of(app, "#stage")
            app.repairs.get(app.views[0].spec).until = 0.0
            app.screen.tick()
            assert "a moment more" in text_of(app, "#stage")
            script.let_go.set()
            await until(lambda: not app.screen.query_one("#stage").display)

    asyncio.run(run())


def test_a_plan_is_made_again_when_a_change_was_taken_back_elsewhere_too(
    scripted: tuple[DoctorApp, Scripted], settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, script = scripted
    (view,) = app.views
    calm = view.state
    state = [calm]
    monkeypatch.setattr(type(view), "state", property(lambda self: state[0]))

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            plans = script.plans
            for changes in ((change("applied"),), (change("undone"),)):  # `infradoc undo` in another window
                state[0] = replace(calm, changes=changes)
                app.kick()
                await until(lambda seen=plans: script.plans > seen)
                await settle(pilot)
                plans = script.plans
            app.kick()
            await settle(pilot)
            assert script.plans == plans  # nothing moved
            state[0] = replace(state[0], started=5.0)
            app.kick()
            await until(lambda: script.plans > plans)

    asyncio.run(run())


def test_a_refusal_says_until_when_and_the_plan_follows(scripted: tuple[DoctorApp, Scripted], settle: Any) -> None:
    app, script = scripted
    now = time.time()
    script.refused = (("max_num_seqs", Refusal("en", "cooldown", "16 -> 8", now, now + 300.0, now)),)

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await settle(pilot)
            await pilot.press("f", "enter")
            await settle(pilot)
            await until(lambda: "max_num_seqs cannot be changed before" in text_of(app, "#stage"))
            assert re.search(r"\d\d:\d\d:\d\d \(5 min more\)", text_of(app, "#stage"))
            assert "next change in" in text_of(app, "#plan")
            await pilot.press("a")
            assert isinstance(app.screen, FindingScreen)
            assert any("cannot be changed before" in str(note.message) for note in app._notifications)
            script.refused = ()
            app.screen.planned.plan.refused[0][1].until = time.time() - 1.0  # the cooldown is over
            app.kick()
            await until(lambda: "a applies: max_num_seqs" in text_of(app, "#stage"))

    asyncio.run(run())


def test_what_a_restart_ended_is_not_taken_back(
    scripted: tuple[DoctorApp, Scripted], settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = scripted
    (view,) = app.views
    state = replace(view.state, changes=(change("applied", started=100.0),), started=900.0)
    monkeypatch.setattr(type(view), "state", state)

    async def run() -> None:
        async with app.run_test(size=(140, 50)) as pilot:
            await to_the_finding(app, pilot, settle)
            await pilot.press("u")
            assert isinstance(app.screen, FindingScreen)
            assert any("restarted since the last change" in str(note.message) for note in app._notifications)

    asyncio.run(run())
