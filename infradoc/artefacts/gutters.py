"""What a tool puts in front of every line when it shows a file: line numbers, file names, marks of a diff, a host.

A gutter is taken off only when nearly every line has it and its numbers count on; a table that begins with numbers does
neither, or has other numbers behind them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns.prefix import take_off

Step = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Gutter:
    """How it is taken off a line, and the expression whose group "name" tells whose line it is; None: nobody's."""

    step: Step
    naming: re.Pattern[str] | None = None

    def name_of(self, line: str) -> str:
        """Whose line it is; empty where it has no gutter."""
        found = self.naming.match(line) if self.naming is not None else None
        return found["name"] if found is not None else ""


def taking_off(pattern: re.Pattern[str]) -> Gutter:
    """A gutter that an expression finds at the beginning of a line."""
    return Gutter(lambda line: pattern.sub("", line, count=1), pattern if "name" in pattern.groupindex else None)


_NEARLY = 0.95
_LEAST_PART = 2  # counted lines, one below the other
_GREP_FILE = lazy(r"^(?P<name>[\w.~/-]{0,200}[./][A-Za-z][\w.-]{1,100})(?P<mark>[:-])(?P<n>\d{1,8})(?P=mark)")
_FILE_ONLY = lazy(r"^(?P<name>[\w.~/-]{1,200}\.(?:log|txt|out|err)(?:\.\d{1,3})?):(?!\d+\])")
_GREP = lazy(r"^(?P<n>\d{1,8})[:-]")
_COUNTED = lazy(r"^ {0,12}(?P<n>\d{1,8})(?:\t|[│|] ?|: )")
_COUNTED_PART = lazy(r"^ {0,12}(?P<n>\d{1,8})(?:\t|$)")
_COLUMN = lazy(r"^ {0,12}(?P<n>\d{1,8})(?: |$)")
_DIFF_HEAD = lazy(r"^(?:diff --git |index [0-9a-f]{6,}|--- |\+\+\+ |@@ |new file mode|deleted file mode|\\ No newline)")
_PLUS = lazy(r"^\+(?!-{4}|={4}) ?")
_STERN = lazy(r"^(?P<name>[a-z0-9][a-z0-9.-]{1,80}-[a-z0-9]{1,10}) (?:› )?(?P<container>[a-z][a-z0-9-]{1,60}) (?=\S)")
_NUMBERS_ONLY = lazy(r"^[-+\d.eE%,\s]*$")


def gutter(lines: Sequence[str]) -> Gutter | None:
    """What takes the gutter off each of these lines; None where there is none."""
    filled = [line for line in lines if line.strip()]
    if not filled or take_off(filled[0]).stamp is not None or take_off(filled[-1]).stamp is not None:
        return None
    for pattern, most_jump, least in ((_GREP_FILE, None, 1), (_COUNTED, None, 1), (_GREP, None, 1), (_COLUMN, 1, 2)):
        if _counts(filled, pattern, most_jump, least):
            return taking_off(pattern)
    if _part(filled):
        return taking_off(_COUNTED_PART)
    if _named(filled, _FILE_ONLY):
        return taking_off(_FILE_ONLY)
    if _added(filled):
        blank = all(line[1:2] in ("", " ") for line in filled if line[:1] == "+" and not _DIFF_HEAD.match(line))
        return Gutter(_without_blank if blank else _without_plus)
    if _named(filled, _STERN) and len(filled) > 2:
        return taking_off(_STERN)
    return None


def _counts(lines: Sequence[str], pattern: re.Pattern[str], most_jump: int | None, least: int) -> bool:
    """Whether nearly all lines begin with numbers that grow, and are followed by more than numbers."""
    if pattern.match(lines[0]) is None and pattern.match(lines[-1]) is None:
        return False
    found = [pattern.match(line) for line in lines]
    numbers = [int(match["n"]) for match in found if match]
    if len(numbers) < max(least, _NEARLY * len(lines)):
        return False
    jumps = [later - before for before, later in pairwise(numbers)]
    if any(jump < 1 for jump in jumps) and not _names(found) > 1:
        return False
    # Blank lines are counted as well, so a number may be left out; a column of steps or seconds grows by more.
    if most_jump is not None and sum(1 for jump in jumps if jump <= 2) < 0.8 * len(jumps):
        return False
    if most_jump is not None and numbers[0] > 1 and found[0] is not None and found[0].start("n") == 0:
        return False
    if numbers == list(range(1, len(numbers) + 1)) and lines[0][:1] == " ":  # counted from 1, and set right: `cat -n`
        return True
    rest = [line[match.end() :] for match, line in zip(found, lines, strict=True) if match]
    return sum(1 for text in rest if _NUMBERS_ONLY.match(text)) < 0.5 * len(rest)


def _part(lines: Sequence[str]) -> bool:
    """Whether a part of a page is a file whose lines are counted one by one, with other text above and below it."""
    found = [(place, int(match["n"])) for place, line in enumerate(lines) if (match := _COUNTED_PART.match(line))]
    if len(found) < _LEAST_PART or found[0][1] > 1 or not all("\t" in lines[place] for place, _ in found[:2]):
        return False
    return all(after[0] - before[0] == 1 == after[1] - before[1] for before, after in pairwise(found))


def _names(found: Sequence[re.Match[str] | None]) -> int:
    return len({match["name"] for match in found if match is not None and "name" in match.re.groupindex})


def _named(lines: Sequence[str], pattern: re.Pattern[str]) -> bool:
    if pattern.match(lines[0]) is None and pattern.match(lines[-1]) is None:
        return False
    found = [match for line in lines if (match := pattern.match(line)) is not None]
    return len(found) >= _NEARLY * len(lines) and len({match["name"] for match in found}) <= 16


def _added(lines: Sequence[str]) -> bool:
    """Whether all lines are those that a diff adds: a file sent as a patch, or a trace of a shell."""
    if not (lines[0].startswith("+") or _DIFF_HEAD.match(lines[0])):
        return False
    body = [line for line in lines if not _DIFF_HEAD.match(line)]
    plus = sum(1 for line in body if _PLUS.match(line))
    return bool(plus) and plus >= _NEARLY * len(body)


def _without_plus(line: str) -> str:
    return "" if _DIFF_HEAD.match(line) else line.removeprefix("+")


def _without_blank(line: str) -> str:
    return "" if _DIFF_HEAD.match(line) else _PLUS.sub("", line, count=1)


def hosts(lines: Sequence[str]) -> Gutter | None:
    """What takes a host's name off that `pdsh`, `ansible` or a central syslog put before each line."""
    filled = [line for line in lines if line.strip()]
    if len(filled) < 3 or (_HOST.match(filled[0]) is None and _HOST.match(filled[-1]) is None):
        return None
    names = Counter(match["name"] for line in filled if (match := _HOST.match(line)) is not None)
    if not names or sum(names.values()) < _NEARLY * len(filled) or len(names) > 64:
        return None
    if any(take_off(f"{name}: x").message != f"{name}: x" for name in names):  # a level or a process: a logger's own
        return None
    return taking_off(_HOST)


_HOST = lazy(r"^(?P<name>[a-zA-Z][\w.-]{0,60}\d[\w.-]{0,40}):(?: |$|(?=[^\s\d]))")
