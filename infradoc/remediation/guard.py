"""The guard: no knob is pushed to and fro.

A pure function of the journal and the time. After a change of a knob (applied, or taken back) every further change of
that knob waits for the cooldown; a change in the other direction waits longer; and a direction that was taken back
because it did not help is not tried again for as long. Taking a change back is always allowed. All of it ends with the
process that was changed: one that was started since has its flags' values, and other load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infradoc.remediation.journal import ChangeRecord
from infradoc.remediation.words import say
from infradoc_rules.model import Value

COOLDOWN_SECONDS = 300.0
REVERSE_SECONDS = 1800.0


class Refusal(str):
    """Why not now, as one sentence of the moment it was made; `until` is when it ends (Unix seconds)."""

    until: float
    _parts: tuple[str, str, str, float]

    def __new__(cls, lang: str, key: str, move: str, when: float, until: float, now: float) -> Refusal:
        """The sentence `key` of `words.TEXTS` about a change `move` that was made at `when`."""
        since, left = max(0.0, now - when), max(0.0, until - now)
        made = super().__new__(cls, say(lang, key, since=f"{since:.0f}", move=move, left=f"{left:.0f}"))
        made.until, made._parts = until, (lang, key, move, when)
        return made

    def told(self, now: float) -> str:
        """The same at a later moment."""
        return Refusal(*self._parts, self.until, now)


@dataclass(frozen=True, slots=True)
class Guard:
    """The changes known for one target. Times in seconds. `started`: when its process began, None where not known."""

    changes: Sequence[ChangeRecord]
    cooldown: float = COOLDOWN_SECONDS
    reverse: float = REVERSE_SECONDS
    lang: str = "en"
    started: float | None = None

    def refusal(self, knob: str, old: Value | None, new: Value, now: float) -> Refusal | None:
        """Why `knob` must not go from `old` to `new` now, and until when; None when it may."""
        for change in reversed(self.changes):
            if not change.happened or not change.is_of(self.started):
                continue
            for moved, before, after in change.intent.moves:
                if moved == knob:
                    reason = self._against(change, (before, after), direction(old, new), now)
                    if reason is not None:
                        return reason
        return None

    def _against(
        self, change: ChangeRecord, move: tuple[Value | None, Value | None], wanted: int, now: float
    ) -> Refusal | None:
        # Negative when the clock was set back: as if it had just happened.
        since = max(0.0, now - change.last.time)
        done = direction(*move)
        undone = change.last.kind == "undone"
        if since < self.cooldown:
            key, wait = "cooldown", self.cooldown
        elif since < self.reverse and undone == (wanted == done):
            key, wait = "tried" if undone else "reverses", self.reverse
        else:
            return None
        told = " -> ".join(say(self.lang, "unset") if value is None else str(value) for value in move)
        return Refusal(self.lang, key, told, now - since, now - since + wait, now)


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
