"""One attempt to hand a message to a sink, and what follows from how it ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

from infradoc.alerts.apart import in_thread
from infradoc.alerts.backoff import Pace, full_jitter
from infradoc.alerts.clean import clean_text
from infradoc.alerts.outbox import Result, Row, SinkState
from infradoc.alerts.post import Poster, SendError
from infradoc.alerts.sinks.apprise import AppriseSink
from infradoc.alerts.sinks.base import Outcome, Sink
from infradoc.errors import InfradocError
from infradoc.sources.secrets import HIDDEN


async def attempt(sink: Sink, poster: Poster, stored: str | Mapping[str, Any], now: float) -> Outcome:
    """Send a message (or its JSON) once.

    Raises nothing but cancellation: whatever goes wrong with one message is no other's trouble.
    """
    try:
        message: Mapping[str, Any] = json.loads(stored) if isinstance(stored, str) else stored
        if isinstance(sink, AppriseSink):
            outcome = await _apart(sink, message)
        else:
            outcome = sink.judge(await poster.post(sink.request(message, now)), now)
    except SendError as error:
        outcome = Outcome("dead" if error.final else "retry", str(error), trips=error.trips)
    except InfradocError as error:
        outcome = Outcome("retry", str(error))
    except Exception as error:  # a message that this version cannot render, say: told, and kept to be sent again
        outcome = Outcome("dead", f"Internal error: {type(error).__name__}: {clean_text(str(error), 200)}")
    return Outcome(outcome.fate, without(sink, outcome.text), outcome.after, outcome.trips)


async def _apart(sink: AppriseSink, message: Mapping[str, Any]) -> Outcome:
    """In a thread that nobody waits for longer than the sink's timeout; it may end later, or never."""
    try:
        async with asyncio.timeout(sink.config.timeout):
            return await in_thread(lambda: sink.send(message), f"alerts-{sink.name}")
    except TimeoutError:
        return Outcome("retry", f"apprise did not end within {sink.config.timeout:g} s", None, True)


def without(sink: Sink, text: str) -> str:
    """`text` with every secret of the sink taken out: receivers like to echo what they were sent."""
    try:
        known = [sink.address(), sink.key(), *sink.secrets(), *sink.auth_headers().values()]
    except InfradocError:
        return text
    if sink.config.url:
        known = known[1:]
    for secret in known:
        for part in (secret, secret.removeprefix("Bearer "), secret.partition("://")[2]):
            text = text.replace(part, HIDDEN) if len(part) >= 4 else text
    return text


def result_of(row: Row, outcome: Outcome, now: float, state: SinkState, pace: Pace, chance: random.Random) -> Result:
    """What to note: when to try again, whether to keep off the sink, whether to give the message up."""
    if outcome.fate in ("delivered", "disable"):
        return Result(row, outcome.fate, now, outcome.text)
    wait = full_jitter(row.attempts + 1, pace.base, pace.cap, chance)
    due = now + max(wait, outcome.after or 0.0)
    if outcome.fate == "dead" or due > row.deadline:
        text = outcome.text if outcome.fate == "dead" else f"Given up after {row.attempts + 1} attempts: {outcome.text}"
        return Result(row, "dead", now, text, trips=outcome.trips)
    failures = state.failures + 1
    opened = 0.0
    if outcome.trips and failures >= pace.trips:
        opened = now + full_jitter(failures - pace.trips + 1, pace.breaker_base, pace.breaker_cap, chance)
    block = now + outcome.after if outcome.after else 0.0
    return Result(row, "retry", now, outcome.text, due, block, outcome.trips, opened)
