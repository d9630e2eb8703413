"""The journal: an append-only file of JSON lines that says what was changed, why, and how to go back.

The intent is on disk before the change is sent. So after a kill at any moment `infradoc undo` knows what may have been
changed, and the engine's present value tells whether it was. Entries of one change share its `change` id:
intent, then applied or failed, then verdict, then undo_intent and undone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from infradoc.errors import InfradocError
from infradoc.model import PlanStep
from infradoc.remediation.process import is_same
from infradoc.remediation.state import state_dir
from infradoc_rules.model import Value

EntryKind = Literal["intent", "applied", "failed", "verdict", "undo_intent", "undone"]
FILE_NAME = "journal.jsonl"
NEVER_SENT = "never came into force"  # note of a change that was closed at its intent
_LAST_TIME = 253402300800.0  # Unix seconds of the year 10000, from where on no calendar goes


class JournalError(InfradocError):
    """The journal cannot be read or written; nothing is changed without it."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `time` is Unix seconds; `old` and `new` are the knob's values before and after the change.

    `holder` is the name under which the change was made: who takes it back speaks under the same name, so that the
    engine's lease lets it through after a crash. `started` is when the changed process began, where the target tells
    it: a change made while it runs ends with it, and binds no later one.
    """

    kind: EntryKind
    change: str
    time: float
    target: str
    knob: str
    old: Value | None
    new: Value | None
    finding: str = ""
    action: str = ""
    holder: str = ""
    note: str = ""
    also: tuple[tuple[str, Value | None, Value | None], ...] = ()  # (knob, old, new) of the same change
    started: float | None = None

    @property
    def moves(self) -> tuple[tuple[str, Value | None, Value | None], ...]:
        """Every knob of the change with its old and its new value."""
        return ((self.knob, self.old, self.new), *self.also)


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One change as all its entries tell it."""

    intent: Entry
    last: Entry
    verdict: str | None

    @property
    def open(self) -> bool:
        """Whether the change may be in force: sent or about to be sent, and not taken back."""
        return self.last.kind not in ("failed", "undone")

    @property
    def happened(self) -> bool:
        """Whether the engine ever had it, as far as is known: a change that was never sent needs no cooldown."""
        never_sent = self.last.kind == "undone" and self.last.note == NEVER_SENT
        return self.last.kind != "failed" and not never_sent

    def is_of(self, started: float | None) -> bool:
        """Whether it was made in the process that began at `started`, as far as both are known."""
        return is_same(self.intent.started, started)


class Journal:
    """The file. Several processes may append; each line is written in one write and synced before going on."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or state_dir()) / FILE_NAME

    def begin(self, first: Entry) -> Entry:
        """Write the intent of a change before it is sent. Raises JournalError."""
        self.append(first)
        return first

    def follow(self, first: Entry, kind: EntryKind, note: str = "") -> Entry:
        """Write the next entry of a change. Raises JournalError."""
        entry = replace(first, kind=kind, time=time.time(), note=note)
        self.append(entry)
        return entry

    def append(self, entry: Entry) -> None:
        """Append one entry and sync it to disk. A torn last line of a killed writer is closed first."""
        line = json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked() as handle:
                torn = handle > 0 and self._last_byte(handle) != b"\n"
                os.write(handle, b"\n" + line if torn else line)
                os.fsync(handle)
        except OSError as error:
            message = f"The journal {self.path} cannot be written: {error.strerror}."
            if entry.kind == "intent":  # all else is about what was changed
                message = f"The journal {self.path} cannot be written: {error.strerror}; nothing was changed."
            raise JournalError(message, "Free the disk or set INFRADOC_STATE_DIR.") from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    @staticmethod
    def _last_byte(handle: int) -> bytes:
        size = os.fstat(handle).st_size
        return os.pread(handle, 1, size - 1) if size else b"\n"

    def entries(self) -> list[Entry]:
        """All entries in order; torn lines are left out. Raises JournalError when the file cannot be read."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"The journal {self.path} cannot be read: {error.strerror}.") from error
        return [entry for line in text.split(b"\n") if (entry := parse(line)) is not None]

    def changes(self, target: str | None = None) -> list[ChangeRecord]:
        """All changes, oldest first, of one target or of all."""
        grouped: dict[str, list[Entry]] = {}
        for entry in self.entries():
            if target is None or entry.target == target:
                grouped.setdefault(entry.change, []).append(entry)
        return [record(group) for group in grouped.values()]


def intent(
    target: str,
    step: PlanStep,
    old: Value | None,
    new: Value,
    holder: str,
    also: tuple[tuple[str, Value | None, Value | None], ...] = (),
    started: float | None = None,
) -> Entry:
    """The first entry of a new change."""
    action = step.action
    change = secrets.token_hex(6)
    finding, name = step.finding, action.name
    return Entry(
        "intent", change, time.time(), target, action.knob, old, new, finding, name, holder, also=also, started=started
    )


def record(group: list[Entry]) -> ChangeRecord:
    """The entries of one change as one record."""
    verdicts = [entry.note for entry in group if entry.kind == "verdict"]
    states = [entry for entry in group if entry.kind != "verdict"]
    return ChangeRecord(group[0], (states or group)[-1], verdicts[-1] if verdicts else None)


def parse(line: bytes) -> Entry | None:
    """One line as an entry; None when it is torn or foreign."""
    try:
        data = json.loads(line)
        also = tuple((str(knob), old, new) for knob, old, new in data.pop("also", ()))
        entry = Entry(**data, also=also)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return entry if _is_sound(entry) else None


def _is_sound(entry: Entry) -> bool:
    """Whether every field has its type, and the time is one that a calendar can show."""
    texts = (entry.change, entry.target, entry.knob, entry.finding, entry.action, entry.holder, entry.note)
    times = (entry.time, *(() if entry.started is None else (entry.started,)))
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in times)
    values = (value for _, *ends in entry.moves for value in ends)
    return (
        entry.kind in get_args(EntryKind)
        and all(isinstance(text, str) for text in texts)
        and numbers
        and all(0 <= one < _LAST_TIME for one in times)  # false for nan
        and all(value is None or isinstance(value, str | int | float | bool) for value in values)
    )
