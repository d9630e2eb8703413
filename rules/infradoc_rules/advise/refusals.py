"""What refused and cut requests say of their lengths."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc_rules.model import Event
from infradoc_rules.values import number

REFUSED, TRUNCATED, SHIFTED = "request_rejected_length", "request_truncated", "context_shifted"


def limit_hit(events: Sequence[Event]) -> int | None:
    limits = [limit for event in events if event.name in (REFUSED, TRUNCATED) if (limit := _number(event, "limit"))]
    return int(limits[-1]) if limits else None


def longest_refused(events: Sequence[Event]) -> int | None:
    """The longest request refused or cut, with the output it asked for where that was part of the refusal."""
    longest = max((_needed(event) for event in events if event.name in (REFUSED, TRUNCATED)), default=0.0)
    return int(longest) or None


def _needed(event: Event) -> float:
    tokens, limit, output = (_number(event, name) or 0.0 for name in ("tokens", "limit", "output_tokens"))
    if event.name == TRUNCATED:
        return tokens if tokens > limit else 0.0  # below it, it is what was left
    # A prompt that fits is refused for what is to follow it; above the limit the number is the prompt's, or the sum's.
    return tokens + output if tokens <= limit else tokens


def room_for_output(refused: Sequence[Event]) -> tuple[int | None, int | None]:
    """(asked, fitting) output tokens of the longest request that says what of it was prompt; None: none does."""
    rooms = []
    for event in refused:
        tokens, limit, output = (_number(event, name) for name in ("tokens", "limit", "output_tokens"))
        if tokens is None or limit is None or not output or event.fields.get("which") in ("input", "step_budget"):
            continue
        prompt = tokens if tokens <= limit else tokens - output
        if 0 < prompt < limit and output > limit - prompt:
            rooms.append((int(limit - prompt), int(output)))
    return (min(rooms)[1], min(rooms)[0]) if rooms else (None, None)


def fits_with_less(event: Event) -> bool:
    """Whether a refused request could pass with a smaller max_tokens; True where it does not say."""
    tokens, limit, output = (_number(event, name) for name in ("tokens", "limit", "output_tokens"))
    if event.fields.get("which") in ("input", "step_budget") or tokens is None or limit is None:
        return tokens is None or limit is None
    return tokens <= limit or (tokens - (output or 0.0)) <= limit


def was_cut(events: Sequence[Event]) -> bool:
    return any(event.name in (TRUNCATED, SHIFTED) for event in events)


def _number(event: Event, field: str) -> float | None:
    return number(event.fields.get(field))
