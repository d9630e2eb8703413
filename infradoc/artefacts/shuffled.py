"""Puts tracebacks together again whose lines came out of order.

Log collectors sort by a stamp of whole seconds and keep no order within one. A traceback that an engine logged line by
line then has its exception before its frames, and the phase of the failure would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns.prefix import take_off
from infradoc_rules.patterns.traceback import EXCEPTION

_HEAD = "Traceback (most recent call last):"
_FRAME = lazy(r'^\s*File "[^"]{1,300}", line \d+')
_CODE = lazy(r"^ {4,}\S|^\s*[\^~]{2,}")
_MOST_LINES = 20_000  # of longer logs the collector was no chat window: their order is taken as it is


def in_order(lines: Sequence[str]) -> Sequence[str]:
    """The lines, with those of a second and writer rearranged where a traceback in them is out of order.

    Rearranged: plain lines, head, frames, exception. Source code quoted in frames is left blank, for without its frame
    it cannot be told from what was logged. Their number stays the same.
    """
    if len(lines) > _MOST_LINES or not any('File "' in line for line in lines):
        return lines
    groups: dict[tuple[str, str], list[int]] = {}
    messages: dict[int, str] = {}
    for index, line in enumerate(lines):
        prefix = take_off(line) if line else None
        if prefix is not None and prefix.stamp is not None:
            messages[index] = prefix.message
            groups.setdefault((prefix.stamp[1], prefix.process), []).append(index)
    out: list[str] | None = None
    for places in groups.values():
        if len(places) > 1 and _scrambled([messages[place] for place in places]):
            out = list(lines) if out is None else out
            ranked = sorted(places, key=lambda place: (_rank(messages[place]), place))
            for place, other in zip(places, ranked, strict=True):
                out[place] = "" if _rank(messages[other]) == _CODE_RANK else lines[other]
    return lines if out is None else out


_CODE_RANK = 1


def _rank(message: str) -> int:
    if _HEAD in message:
        return 2
    if _FRAME.match(message):
        return 3
    if EXCEPTION.match(message.strip()):
        return 4
    return _CODE_RANK if _CODE.match(message) else 0


def _scrambled(messages: Sequence[str]) -> bool:
    """Whether a head is not followed by a frame, or an exception stands where none can end a traceback."""
    if not any(_FRAME.match(message) for message in messages):
        return False
    if any(_HEAD in one and not _FRAME.match(after) for one, after in zip(messages, [*messages[1:], ""], strict=True)):
        return True
    seen_frame = False
    for before, message in zip(["", *messages], messages, strict=False):
        rank = _rank(message)
        if rank == 4 and not seen_frame:
            return True
        if rank == _CODE_RANK and message[:1] == " " and not _FRAME.match(before) and not _CODE.match(before):
            return True
        seen_frame = seen_frame or rank == 3
    return False
