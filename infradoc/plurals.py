"""English that agrees with its number: rules word their texts for many, and sometimes one is there."""

from __future__ import annotations

import re

_NOUNS = (
    "answers|bodies|blocks|callers|changes|chunks|clients|copies|cores|documents|errors|events|failures|files|findings|"
    "graphs|hits|kills|lines|looks|pages|preemptions|prompts|refusals|requests|restarts|rounds|rows|rules|samples|"
    "seconds|servers|slots|steps|streams|threads|tokens|workers"
)
_BETWEEN = "statistics|leaked|running|waiting|finished|failed|stalled|cut|long|short|compute|output|prompt|KV|log|Xid"
_VERBS = {
    "are": "is", "were": "was", "have": "has", "do": "does", "show": "shows", "wait": "waits", "run": "runs",
    "need": "needs", "end": "ends", "come": "comes", "take": "takes", "fit": "fits", "belong": "belongs",
    "hold": "holds", "share": "shares", "say": "says", "name": "names", "use": "uses",
}  # fmt: skip
# A number that is exactly 1, a count noun with at most one word before it, and a verb that may follow.
_ONE = re.compile(
    rf"(?<![\w.,:/%-])1 (?P<between>(?:{_BETWEEN}) )?(?P<noun>{_NOUNS})\b(?![-/])"
    rf"(?: (?P<verb>{'|'.join(_VERBS)})\b)?"
)
# The fraction of a whole number of things; one of seconds or cores tells how exactly they were measured.
_WHOLE = re.compile(rf"(?<=\d)\.0(?= (?:(?:{_BETWEEN}) )?(?!seconds\b|cores\b)(?:{_NOUNS})\b(?![-/]))")

# What was never fewer than none was none at some moment: nobody says "0 or more", and that it was not met says it too.
_NONE = re.compile(rf"(?:not met: )?(?<![\w.,:/%-])0 or more (?P<noun>{_NOUNS}) (?P<verb>\w+)(?: throughout)?")
_NONE_ZH = re.compile(r"(?:未满足：)?(?:始终)?(?:有至少|至少有|至少) ?0 个(?P<what>请求在(?:等待|运行))")


def counted(number: int, noun: str, many: str = "") -> str:
    """`1 request`, `2,000 requests`; `many` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def agreeing(text: str) -> str:
    """The text with what it says of exactly 1 put into the singular, and whole numbers of things without a fraction.

    "1 requests wait" becomes "1 request waits", "12.0 requests" becomes "12 requests", and "0 or more requests waited
    throughout" becomes "at times no request waited", in Chinese as well.
    """
    text = _NONE_ZH.sub(r"有时没有\g<what>", _NONE.sub(_at_times, _WHOLE.sub("", text)))
    return _ONE.sub(_in_singular, text)


def _in_singular(found: re.Match[str]) -> str:
    verb = found["verb"]
    return f"1 {found['between'] or ''}{_one(found['noun'])}" + (f" {_VERBS[verb]}" if verb else "")


def _at_times(found: re.Match[str]) -> str:
    return f"at times no {_one(found['noun'])} {_VERBS.get(found['verb'], found['verb'])}"


def _one(noun: str) -> str:
    return noun[:-3] + "y" if noun.endswith("ies") else noun[:-1]
