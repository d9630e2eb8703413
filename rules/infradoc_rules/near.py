"""Which known name a misspelt or unfinished one stands for: one measure for every "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable

# Likeness is difflib's: twice the letters in common, in order, by the letters of both. Over the knobs, finding ids,
# commands and keys of this project, 0.6 finds the meant name again after one slip (a letter too many, too few, wrong or
# swapped) in 99 of 100 and after two in 84 or more; 0.7 loses one in ten of the short ones. Words that mean nothing
# here are offered a name in 1 to 21 of 100; at 0.5 it is 18 to 52.
_NEAR = 0.6
# Where the answer is stated and not asked: names that share a whole word (`--enable-a`, `--enable-b`) are past 0.6.
_SLIP = 0.75


def near(name: str, known: Iterable[str]) -> str:
    """The known name that `name` most likely stands for, "" where none is near."""
    return next(iter(nearest(name, known, 1)), "")


def nearest(name: str, known: Iterable[str], most: int) -> list[str]:
    """At most `most` known names that `name` may stand for: those it begins (half a name beats a like one), then those
    it is like, the most like first."""
    names = list(known)
    began = [one for one in names if name and one.startswith(name)]
    return list(dict.fromkeys([*began, *_alike(name, names, most, _NEAR)]))[:most]


def slip_of(name: str, known: Iterable[str]) -> str:
    """The known name that `name` is a slip of the pen for, "" for a name of its own that is only like one."""
    return next(iter(_alike(name, list(known), 1, _SLIP)), "")


def _alike(name: str, known: list[str], most: int, least: float) -> list[str]:
    from difflib import get_close_matches  # not above: only who mistypes waits for it

    return get_close_matches(name, known, n=most, cutoff=least)
