"""One change of one or several knobs, and the way back: journalled before it is sent, checked if its answer is lost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction, further_values
from infradoc.remediation.admin import (
    AdminBusy,
    AdminClient,
    AdminConflict,
    AdminError,
    AdminLost,
    EngineState,
    KnobState,
)
from infradoc.remediation.journal import NEVER_SENT, ChangeRecord, Entry, Journal, JournalError, intent
from infradoc.remediation.words import say
from infradoc_rules.model import Value

_LONGEST_NOTE = 200  # characters of an engine's answer in the journal
BUSY_SECONDS = 30.0  # patience with an engine that cannot go back yet: what needs the new limit has to end first
_BUSY_PAUSE = 1.0


class UndoError(InfradocError):
    """The change cannot be taken back; says what would do it."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that is in force. `entry` is what the journal says of it, with the values that the engine took.

    `told` is what the engine answered to something done once.
    """

    entry: Entry
    action: LiveAction
    state: EngineState
    told: Mapping[str, Any] = field(default_factory=dict)


def apply(
    admin: AdminClient, journal: Journal, step: PlanStep, lang: str = "en", started: float | None = None
) -> Applied:
    """Make the change of a step in one request under If-Match: all its knobs or none.

    `started` is when the engine's process began, for the journal.
    Raises AdminConflict when somebody else wrote meanwhile, AdminError or InfradocError when the engine refuses or the
    advice does not fit any more. The journal then says so, or, when the engine is lost, keeps the intent for `undo`.
    """
    action = live_action(step, lang)
    if action.call:
        return order(admin, journal, step, action, started)
    before = admin.config()
    knob = knob_of(before, action.knob)
    try:
        value = action.target_value(step.action, knob, lang)
        further = further_values(step.action, before.knobs, lang)
    except ValueError as error:
        raise InfradocError(say(lang, "no_fit", why=error), say(lang, "new_plan")) from error
    also = tuple((name, before.knobs[name].value, new) for name, new in further.items())
    entry = journal.begin(intent(admin.url, step, knob.value, value, admin.holder, also, started))
    try:
        state = admin.set_all({action.knob: value, **further}, before.version)
    except AdminConflict as error:
        journal.follow(entry, "failed", error.message)
        raise
    except AdminError as error:
        state = after_error(admin, journal, entry, error, lang)
    try:
        entry = journal.follow(as_taken(entry, state), "applied")
    except JournalError:  # the disk filled up in between: what cannot be told must not stay
        restore(admin, {name: old for name, old, _ in entry.moves}, state)
        admin.release()
        raise
    return Applied(entry, action, state)


def as_taken(entry: Entry, state: EngineState) -> Entry:
    """The entry with the values that the engine took; it may round: a pool grows by whole blocks."""
    also = tuple((name, old, knob_of(state, name).value) for name, old, _ in entry.also)
    return replace(entry, new=knob_of(state, entry.knob).value, also=also)


def order(
    admin: AdminClient, journal: Journal, step: PlanStep, action: LiveAction, started: float | None = None
) -> Applied:
    """Have the engine do something once. Raises AdminError when it refuses; the journal then says so."""
    entry = journal.begin(intent(admin.url, step, None, True, admin.holder, started=started))
    try:
        done = admin.call(action.call)
    except AdminLost as error:
        note = f"may have been done, the answer was lost: {error.message}"
        journal.follow(entry, "failed", note[:_LONGEST_NOTE])
        raise
    except AdminError as error:
        journal.follow(entry, "failed", error.message)
        raise
    note = ", ".join(f"{name} {len(value) if isinstance(value, list) else value}" for name, value in done.items())
    return Applied(journal.follow(entry, "applied", note[:_LONGEST_NOTE]), action, admin.config(), done)


def after_error(admin: AdminClient, journal: Journal, entry: Entry, error: AdminError, lang: str = "en") -> EngineState:
    """Look whether a change whose answer is no 200 took effect, once it is not under way any more.

    Raises `error` when it did not, or only in part (which is then set back), and when that cannot be known.
    """
    try:
        if isinstance(error, AdminLost):
            admin.wait_for_turn(keep_lease=True)
        state = admin.config()
    except AdminError as lost:
        raise AdminLost(lost.message, say(lang, "unsettled")) from lost
    moved = {name: old for name, old, _ in entry.moves if knob_of(state, name).value != old}
    if len(moved) == len(entry.moves):
        return state
    if moved:
        admin.set_all(moved, state.version)
    journal.follow(entry, "failed", error.message)
    raise error


def take_back(admin: AdminClient, journal: Journal, change: ChangeRecord, lang: str = "en") -> str:
    """Set the old values again; returns one sentence about what was done.

    Raises UndoError when somebody changed a knob since, AdminError when the engine refuses: the change then stays open
    in the journal. A change that never took effect is closed in the journal without a word to the engine.
    """
    entry = change.last
    action = ACTIONS.get(entry.action)
    if isinstance(action, LiveAction) and action.call:
        journal.follow(entry, "undone", "nothing to take back")
        return say(lang, "once_only", knob=entry.knob)
    admin.holder = entry.holder or admin.holder
    if entry.kind in ("intent", "undo_intent"):  # whoever sent it is gone, and a drain may still be under way
        admin.wait_for_turn()
    state = admin.config()
    back = values_to_restore(entry, state, lang)
    if not back:
        journal.follow(entry, "undone", NEVER_SENT if entry.kind == "intent" else "was not in force")
        return say(lang, "back_already", values=told_values(entry, lang))
    unwritten = ""  # a disk that is full now must not keep the change in force; a later `undo` closes it
    try:
        journal.follow(entry, "undo_intent")
    except JournalError as error:
        unwritten = str(error)
    restore(admin, back, state)
    if not unwritten:
        journal.follow(entry, "undone")
    admin.release()
    return f"{say(lang, 'back_again', values=told_values(entry, lang))} {unwritten}".strip()


def values_to_restore(entry: Entry, state: EngineState, lang: str = "en") -> dict[str, Value | None]:
    """Knobs that stand at the change's new values, with their old ones. Raises UndoError for any other value."""
    back: dict[str, Value | None] = {}
    for name, old, new in entry.moves:
        now = knob_of(state, name).value
        if now == old:
            continue
        # An intent holds what was asked for; the engine may have rounded it up to whole blocks.
        if now != new and not (entry.kind == "intent" and name == "kv_pool_tokens" and rounded(new, now)):
            message = say(lang, "changed_since", knob=name, now=now, old=old, new=new)
            raise UndoError(message, say(lang, "set_by_hand"))
        back[name] = old
    return back


def rounded(asked: Value | None, now: Value | None) -> bool:
    """Whether `now` is a pool of `asked` tokens in whole blocks."""
    if not isinstance(asked, int) or not isinstance(now, int) or isinstance(asked, bool):
        return False
    return 0 <= now - asked < 256


def restore(admin: AdminClient, back: Mapping[str, Value | None], state: EngineState) -> None:
    """Set the old values in one request; waits for requests under way that only the new ones have room for."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            admin.set_all(back, state.version)
        except AdminBusy:
            if time.monotonic() >= end:
                raise
            time.sleep(_BUSY_PAUSE)
            continue
        except AdminLost:
            admin.wait_for_turn(keep_lease=True)
            if any(knob_of(admin.config(), name).value != old for name, old in back.items()):
                raise
        return


def told_values(entry: Entry, lang: str = "en") -> str:
    """`a is 1 and b is 2`, the values before the change."""
    values = [say(lang, "is", knob=name, value=old) for name, old, _ in entry.moves]
    return say(lang, "and").join(values)


def live_action(step: PlanStep, lang: str = "en") -> LiveAction:
    """What carries the step out. Raises InfradocError for advice that is not live."""
    action = ACTIONS.get(step.action.name)
    if not isinstance(action, LiveAction):
        raise InfradocError(say(lang, "not_running", name=step.action.name or step.action.knob))
    return action


def knob_of(state: EngineState, knob: str) -> KnobState:
    """One knob of the engine. Raises AdminError when it has none of that name."""
    if knob not in state.knobs:
        raise AdminError(f"The engine has no knob {knob}.", "Is it an older version?")
    return state.knobs[knob]
