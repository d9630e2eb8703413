"""The guard: no knob is pushed to and fro.

A pure function of the journal and the time. After a change of a knob (applied, or taken back) every further change of
that knob waits for the cooldown; a change in the other direction waits longer; and a direction that was taken back
because it did not help is not tried again for as long. Taking a change back is always allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infradoc.remediation.journal import ChangeRecord
from infradoc.remediation.words import say
from infradoc_rules.model import Value

COOLDOWN_SECONDS = 300.0
REVERSE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Guard:
    """The changes known for one target. Times in seconds."""

    changes: Sequence[ChangeRecord]
    cooldown: float = COOLDOWN_SECONDS
    reverse: float = REVERSE_SECONDS
    lang: str = "en"

    def refusal(self, knob: str, old: Value | None, new: Value, now: float) -> str | None:
        """Why `knob` must not go from `old` to `new` now, as one sentence; None when it may."""
        for change in reversed(self.changes):
            for moved, before, after in change.intent.moves:
                if moved == knob and change.happened:
                    reason = self._against(change, (before, after), direction(old, new), now)
                    if reason is not None:
                        return reason
        return None

    def _against(
        self, change: ChangeRecord, move: tuple[Value | None, Value | None], wanted: int, now: float
    ) -> str | None:
        since = now - change.last.time
        if since < 0:  # the clock was set back: as if it had just happened
            since = 0.0
        done = direction(*move)
        told = " -> ".join(say(self.lang, "unset") if value is None else str(value) for value in move)
        if since < self.cooldown:
            left = f"{self.cooldown - since:.0f}"
            return say(self.lang, "cooldown", since=f"{since:.0f}", move=told, left=left)
        if since >= self.reverse:
            return None
        if change.last.kind == "undone" and wanted == done:
            return say(self.lang, "tried", since=f"{since:.0f}", move=told)
        if change.last.kind != "undone" and wanted != done:
            return say(self.lang, "reverses", since=f"{since:.0f}", move=told)
        return None


def direction(old: Value | None, new: Value | None) -> int:
    """1 up, -1 down; values without order (choices, switches, unset) count as down when they are set back to false."""
    if is_number(old) and is_number(new):
        return 1 if float(new) >= float(old) else -1  # type: ignore[arg-type]
    if isinstance(new, bool):
        return 1 if new else -1
    return hash_direction(old, new)


def hash_direction(old: Value | None, new: Value | None) -> int:
    """Two directions for choices: by the order of the names, so that a -> b and b -> a always differ."""
    return 1 if str(new) >= str(old) else -1


def is_number(value: object) -> bool:
    """A number that is no switch."""
    return isinstance(value, int | float) and not isinstance(value, bool)
