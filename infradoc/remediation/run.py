"""One fix from baseline to verdict: measure, change, let old requests go, measure again, judge, take back if no better.

The load is somebody else's and is never touched. Without a change (`step` is None) the same windows are taken and
judged: that is the control.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from infradoc.model import PlanStep, Verdict
from infradoc.remediation.admin import AdminClient, AdminError
from infradoc.remediation.change import Applied, UndoError, apply, take_back
from infradoc.remediation.client_log import ClientLog
from infradoc.remediation.hold import HoldJudge
from infradoc.remediation.journal import Journal, JournalError
from infradoc.remediation.measure import ClientMeasured, Measured, ServerMeasured
from infradoc.remediation.neighbours import Neighbours
from infradoc.remediation.own_processes import MachineWatch
from infradoc.remediation.plan import is_order
from infradoc.remediation.process import started_at
from infradoc.remediation.verify import Case, judge
from infradoc.remediation.words import say
from infradoc_rules.engine import RuleResults
from infradoc_rules.lifecycle import StateName
from infradoc_rules.model import SignalFrame
from infradoc_rules.schema import Rule, Verify

_LOOK_BACK = 30.0  # seconds without a finished request before a change that count as no load
_SILENT_LOOKS = 3


class Tick(Protocol):
    """What one look gives."""

    @property
    def results(self) -> RuleResults:
        """All rules at this moment."""

    @property
    def frame(self) -> SignalFrame:
        """All series up to this moment."""


class Watcher(Protocol):
    """The monitor of one target."""

    def tick(self, now: float) -> Tick:
        """Look once."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `settle_limit` bounds the wait for old requests, `tail_limit` that for the last ones of the hold."""

    baseline: float = 15.0
    hold: float = 20.0
    settle_limit: float = 60.0
    tail_limit: float = 15.0
    period: float = 1.0

    @classmethod
    def of(cls, verify: Verify) -> Timing:
        """The rule's own times."""
        return cls(baseline=verify.baseline, hold=verify.hold)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fix. `applied` is None for a control run; `note` says what happened to the change afterwards.

    `neighbours`: what other programs took of the machine; None where that cannot be told.
    """

    verdict: Verdict
    before: Measured
    after: Measured
    applied: Applied | None
    settle_seconds: float
    settled: bool
    undone: bool
    note: str
    neighbours: Neighbours | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What the rule said at one moment, with all of the past in view."""

    time: float
    state: StateName


@dataclass(frozen=True, slots=True)
class Stage:
    """What a fix waits for: `key` is its text in `words.TEXTS`, `seconds` how long it lasts at most (0: unknown)."""

    key: str
    seconds: float = 0.0


class Fixer:
    """Runs one fix on one target. `on_stage` is told what begins and how long it may last."""

    def __init__(
        self,
        watcher: Watcher,
        admin: AdminClient,
        journal: Journal,
        clients: ClientLog | None,
        timing: Timing,
        say: Callable[[str], None],
        lang: str = "en",
        on_stage: Callable[[Stage], None] | None = None,
    ) -> None:
        self._watcher = watcher
        self._admin = admin
        self._journal = journal
        self._clients = clients
        self._timing = timing
        self._tell = say
        self._lang = lang
        self._stage = on_stage or (lambda stage: None)
        self._frame: SignalFrame | None = None
        self._machine = MachineWatch()
        self._silent = 0  # looks in a row at which the rule said nothing

    def run(self, rule: Rule, step: PlanStep | None, *, keep: bool = False) -> Outcome:
        """Judge `step` (None: no change) by `rule`. `keep` leaves a change in force that is not better.

        Raises AdminError and InfradocError before or while changing; whatever interrupts the run after the change,
        Ctrl-C included, takes the change back first unless `keep`.
        """
        begin, end, alone = self._baseline(rule, step)
        self._stage(Stage("stage_change"))
        applied = self._apply(step) if step is not None else None
        try:  # from here on: whom it is told may be gone as well
            self._say("took", what=told(applied, self._lang), seconds=f"{time.time() - end:.1f}")
            return self._after(rule, applied, (begin, end), keep, alone)
        except BaseException:
            if applied is not None and not keep:
                self._tell(self._back(applied)[1])
            raise

    def _say(self, key: str, **values: object) -> None:
        """Narrate one text of `words.TEXTS`."""
        self._tell(say(self._lang, key, **values))

    def _baseline(self, rule: Rule, step: PlanStep | None) -> tuple[float, float, bool]:
        """Begin and end of the window before the change; whether it is an order that no load can be compared for."""
        seconds = self._timing.baseline
        began = time.time() - seconds
        self._watch(0.0, rule)
        assert self._frame is not None
        now = time.time()
        in_flight = bool(self._admin.in_flight().received)
        idle = not in_flight and not ServerMeasured(self._frame, now - _LOOK_BACK, now).load()
        if idle:
            self._say("idle")
        if idle and step is not None and is_order(step.action):
            return began, now, True  # what was seen up to here tells what it tells
        self._say("baseline", seconds=f"{seconds:g}")
        self._stage(Stage("stage_baseline", seconds))
        begin = time.time()
        if self._clients is not None:
            self._clients.forget(begin)
        self._watch(seconds, rule)
        return begin, time.time(), False

    def _apply(self, step: PlanStep) -> Applied:
        try:
            started = started_at(self._frame) if self._frame is not None else None
            return apply(self._admin, self._journal, step, self._lang, started)
        except KeyboardInterrupt:
            self._say("interrupted")
            raise

    def _after(
        self, rule: Rule, applied: Applied | None, baseline: tuple[float, float], keep: bool, alone: bool
    ) -> Outcome:
        changed = time.time()
        self._stage(Stage("stage_settle", self._timing.settle_limit))
        settled = self._wait_for_old(self._timing.settle_limit, rule)
        settle_seconds = time.time() - changed
        self._say("settled" if settled else "not_settled", seconds=f"{settle_seconds:.1f}")
        self._say("wait_quiet" if alone else "hold", seconds=f"{self._timing.hold:g}")
        self._stage(Stage("stage_quiet" if alone else "stage_hold", self._timing.hold))
        hold_begin = time.time()
        hold = HoldJudge(rule, hold_begin)
        looks = self._watch(self._timing.hold, rule, until=self._is_quiet if alone else None, hold=hold)
        hold_end = time.time()
        self._stage(Stage("stage_tail", self._timing.tail_limit))
        self._wait_for_old(self._timing.tail_limit, rule)
        before, after = self._measured(*baseline), self._measured(hold_begin, hold_end)
        quiet = hold.quiet(looks[-1].state if looks else None)
        others = Neighbours.of(self._machine.use(*baseline), self._machine.use(hold_begin, hold_end))
        verdict = judge(Case(before, after, quiet, rule.id, rule.verify, alone, self._lang, others))
        undone, note = self._conclude(verdict, applied, keep)
        return Outcome(verdict, before, after, applied, settle_seconds, settled, undone, note, others)

    def _is_quiet(self) -> bool:
        """Whether the rule has been silent for the last looks."""
        return self._silent >= _SILENT_LOOKS

    def _conclude(self, verdict: Verdict, applied: Applied | None, keep: bool) -> tuple[bool, str]:
        """Journal the verdict and take the change back when it is not better."""
        if applied is None:
            return False, say(self._lang, "no_change")
        try:
            self._journal.follow(applied.entry, "verdict", verdict.verdict)
        except JournalError as error:  # a full disk: the verdict stands, and is acted on
            self._tell(str(error))
        if verdict.verdict == "fixed" or keep:
            self._admin.release()
            if applied.action.call:
                return False, say(self._lang, "done_once", knob=applied.entry.knob)
            moves = [say(self._lang, "stays_at", knob=knob, value=new) for knob, _, new in applied.entry.moves]
            key = "stays" if verdict.verdict == "fixed" else "stays_as_asked"
            return False, say(self._lang, key, moves=say(self._lang, "and").join(moves))
        return self._back(applied)

    def _back(self, applied: Applied) -> tuple[bool, str]:
        """Take the change back; where the engine or somebody else stands in the way it stays, and the note says so."""
        change = next(c for c in self._journal.changes() if c.intent.change == applied.entry.change)
        self._stage(Stage("stage_back"))
        try:
            return True, take_back(self._admin, self._journal, change, self._lang)
        except UndoError as error:
            return False, str(error)
        except AdminError as error:
            return False, say(self._lang, "back_failed", error=error.message)

    def _measured(self, begin: float, end: float) -> Measured:
        """Clients' own measurements where there are any in the window, else the server's."""
        records = self._clients.records() if self._clients is not None else []
        if any(begin <= record.end for record in records):
            return ClientMeasured(records, begin, end, self._frame)
        assert self._frame is not None
        return ServerMeasured(self._frame, begin, end)

    def _watch(
        self, seconds: float, rule: Rule, until: Callable[[], bool] | None = None, hold: HoldJudge | None = None
    ) -> list[Look]:
        """Look once a period for `seconds`, or until a condition holds; returns what the rule said."""
        looks: list[Look] = []
        end = time.monotonic() + seconds
        due = time.monotonic()
        while True:
            now = time.time()
            tick = self._watcher.tick(now)
            self._frame = tick.frame
            self._machine.look(tick.frame)
            looks.append(Look(now, tick.results.by_id[rule.id].state))
            self._silent = 0 if looks[-1].state in ("firing", "pending", "unknown") else self._silent + 1
            if hold is not None:
                hold.look(tick.frame)
            if until is not None and until():
                return looks
            due = max(due + self._timing.period, time.monotonic())
            if due >= end:
                time.sleep(max(0.0, end - time.monotonic()))
                self._machine.look(tick.frame)  # the last second counts too
                return looks
            time.sleep(max(0.0, due - time.monotonic()))

    def _wait_for_old(self, limit: float, rule: Rule) -> bool:
        """Wait until the requests that are now with the engine are gone; False when the time was up first."""
        old = set(self._admin.in_flight().received)
        gone = not old

        def check() -> bool:
            nonlocal gone
            gone = not old & set(self._admin.in_flight().received)
            return gone

        if not gone:
            self._watch(limit, rule, until=check)
        return gone


def told(applied: Applied | None, lang: str = "en") -> str:
    """The change in words."""
    if applied is None:
        return say(lang, "control")
    if applied.action.call:
        return say(lang, "done", knob=applied.entry.knob, note=applied.entry.note)
    moves = ", ".join(f"{knob} {old} -> {new}" for knob, old, new in applied.entry.moves)
    return say(lang, "applied", moves=moves)


__all__ = ["AdminError", "Fixer", "Look", "Outcome", "Stage", "Timing"]
