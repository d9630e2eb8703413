"""One change of one knob, and the way back: journalled before it is sent, checked when the answer was lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction
from infradoc.remediation.admin import AdminClient, AdminConflict, AdminError, EngineState, KnobState
from infradoc.remediation.journal import ChangeRecord, Entry, Journal, intent


class UndoError(InfradocError):
    """The change cannot be taken back while the engine runs; says what would do it."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that is in force. `entry` is what the journal says of it, with the value that the engine took."""

    entry: Entry
    action: LiveAction
    state: EngineState


def apply(admin: AdminClient, journal: Journal, step: PlanStep) -> Applied:
    """Make the change of a step under If-Match.

    Raises AdminConflict when somebody else wrote meanwhile, AdminError or InfradocError when the engine refuses or the
    advice does not fit any more. The journal then says so, or, when the engine is lost, keeps the intent for `undo`.
    """
    action = live_action(step)
    before = admin.config()
    knob = knob_of(before, action.knob)
    try:
        value = action.target_value(step.action, knob)
    except ValueError as error:
        raise InfradocError(f"The plan does not fit the engine any more: {error}", "Make a new plan.") from error
    entry = journal.begin(intent(admin.url, step, knob.value, value, admin.holder))
    try:
        state = admin.set(action.knob, value, before.version)
    except AdminConflict as error:
        journal.follow(entry, "failed", error.message)
        raise
    except AdminError as error:
        state = after_lost_answer(admin, journal, entry, error)
    # The engine may round: a pool grows by whole blocks.
    applied = journal.follow(replace(entry, new=knob_of(state, action.knob).value), "applied")
    return Applied(applied, action, state)


def after_lost_answer(admin: AdminClient, journal: Journal, entry: Entry, error: AdminError) -> EngineState:
    """Look whether a change whose answer is no 200 took effect; raises `error` when it did not or cannot be known."""
    state = admin.config()
    if knob_of(state, entry.knob).value == entry.old:
        journal.follow(entry, "failed", error.message)
        raise error
    return state


def take_back(admin: AdminClient, journal: Journal, change: ChangeRecord) -> str:
    """Set the old value again; returns one sentence about what was done.

    Raises UndoError when the knob cannot go back live or somebody changed it since, AdminError when the engine
    refuses. A change that never took effect is closed in the journal without a word to the engine.
    """
    entry = change.last
    state = admin.config()
    now = knob_of(state, entry.knob).value
    if now == entry.old:
        journal.follow(entry, "undone", "was not in force")
        return f"{entry.knob} is {entry.old} already: the change was not in force any more."
    if now != entry.new:
        message = (
            f"{entry.knob} is {now}, neither {entry.old} (before) nor {entry.new} (after): somebody changed it since."
        )
        raise UndoError(message, "Set it by hand if it is wrong.")
    action = ACTIONS.get(entry.action)
    if not isinstance(action, LiveAction) or action.undo != "live":
        flag = knob_of(state, entry.knob).flag
        message = f"{entry.knob} cannot go back from {entry.new} to {entry.old} while the engine serves."
        raise UndoError(
            message, f"Restart it with {flag} {entry.old}." if entry.old is not None else f"Restart it without {flag}."
        )
    admin.holder = entry.holder or admin.holder
    journal.follow(entry, "undo_intent")
    admin.set(entry.knob, entry.old, state.version)
    journal.follow(entry, "undone")
    admin.release()
    return f"{entry.knob} is {entry.old} again."


def live_action(step: PlanStep) -> LiveAction:
    """What carries the step out. Raises InfradocError for advice that is not live."""
    action = ACTIONS.get(step.action.name)
    if not isinstance(action, LiveAction):
        raise InfradocError(f"{step.action.name or step.action.knob} cannot be applied to a running engine.")
    return action


def knob_of(state: EngineState, knob: str) -> KnobState:
    """One knob of the engine. Raises AdminError when it has none of that name."""
    if knob not in state.knobs:
        raise AdminError(f"The engine has no knob {knob}.", "Is it an older version?")
    return state.knobs[knob]
