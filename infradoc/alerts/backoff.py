"""When to try again: full jitter, what Retry-After says, and token buckets. Pure; the state lies in the database."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_RETRY_AFTER = 86_400.0  # a header that says more is a mistake, and would park the sink for good


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the waits. base..cap: of one message; breaker_*: of a sink whose last `trips` attempts all failed."""

    base: float = 1.0
    cap: float = 300.0
    trips: int = 5
    breaker_base: float = 5.0
    breaker_cap: float = 300.0
    idle: float = 0.5


def full_jitter(attempt: int, base: float, cap: float, chance: random.Random) -> float:
    """A wait before the try after `attempt` failures (1 or more): uniform below min(cap, base * 2^attempt).

    Half of it at least would synchronise many senders; nothing at all would hammer: hence the floor of a tenth.
    """
    limit = min(cap, base * 2.0 ** min(attempt, 40))
    return float(chance.uniform(limit / 10, limit))


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds of a Retry-After header: a number or an HTTP date (RFC 9110 10.2.3). None when there is none to obey."""
    text = (value or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` requests in any `seconds`.

    Kept by a bucket of a quarter of `count` that refills with the rest in `seconds`: a bucket of the whole count would
    let twice as many through in the window after a quiet one, and DingTalk blocks for ten minutes for that.
    """

    count: int
    seconds: float

    @property
    def burst(self) -> float:
        """What the full bucket holds."""
        return float(max(1, self.count // 4))

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return max(self.count - self.burst, 0.5) / self.seconds


def take(limits: tuple[Limit, ...], state: dict[str, tuple[float, float]], now: float) -> float:
    """Take one token of every bucket, or none; returns the seconds until all would have one (0: taken).

    `state` maps "count/seconds" to (tokens, when that was), and is changed in place.
    """
    filled: dict[str, float] = {}
    wait = 0.0
    for limit in limits:
        key = f"{limit.count}/{limit.seconds:g}"
        tokens, at = state.get(key, (limit.burst, now))
        tokens = min(limit.burst, tokens + max(0.0, now - at) * limit.rate)
        filled[key] = tokens
        wait = max(wait, (1.0 - tokens) / limit.rate)
    if wait > 1e-9:
        return wait
    state.update({key: (tokens - 1.0, now) for key, tokens in filled.items()})
    return 0.0
