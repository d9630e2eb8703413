"""Lines as a tool wrote them, from lines as they were pasted: terminal control, markup and container prefixes removed.

Nothing here changes the number of lines, so that every place named in a report is one of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from infradoc.artefacts.gutters import Gutter, gutter, hosts, taking_off
from infradoc.artefacts.literals import printed_line
from infradoc.artefacts.overwritten import behind_bars, rubbed_out, shown
from infradoc.artefacts.records import message_of
from infradoc.artefacts.unwrap import Unwrap
from infradoc_rules.lazy_pattern import lazy

_ANSI = lazy(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?|[@-_])")
# The escape character is lost in many pastes: "[1;36m(EngineCore_DP0 pid=1)[0;0m".
# What moves the cursor rather than colours: blanks that were never printed, and back to the beginning of the line.
_RIGHT = lazy(r"\x1b\[(\d{0,3})C")
_TO_START = lazy(r"\x1b\[1?G")
_BARE_ANSI = lazy(r"(?:\^\[|\\x1b|\\u001b|\\033|#x1B)?\[[0-9]{1,2}(?:;[0-9]{1,3}){0,3}m(?!\])")
_CONTROL = lazy(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
_ENTITY = lazy(r"&(?:lt|gt|amp|quot|nbsp|apos|#\d{1,6}|#x[0-9a-fA-F]{1,6});")
_TAG = lazy(
    r"<!DOCTYPE[^<>]{0,80}>|</?(?:html|head|body|title|font|pre|code|br|details|summary|p|div|span|b|i|li|ul|ol|td|tr|table|blockquote)\b[^<>]{0,200}/?>"
)
_QUOTE = lazy(r"^(?:> ?){1,4}(?!>)")
_FENCE = lazy(r"^\s{0,8}(?:`{3,}|~{3,})\s*[\w+#.-]{0,40}\s*$")
_EMOJI = lazy(r"^[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001faff][\ufe0f\u200d]? *")
_PROMPT = lazy(r"^(?:\(\w[\w.-]{0,40}\) )?(?:[\w.-]{1,60}@[\w.-]{1,60}:[^\s#$]{0,200}[#$]|\$) (?=\S)")
_COMPOSE = lazy(r"^(?P<name>[A-Za-z][\w.-]{0,80}?) {0,60}\| ?")
_POD = lazy(r"^\[(?P<name>pod/[\w./-]{1,200})\] ?")
_CRI = lazy(r"^(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)) (?:stdout|stderr) [FP] ")
# `aws logs tail` and `logcli` name the stream behind the stamp: its group and id, its labels.
_STREAM = lazy(
    r"^(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:?\d\d))"
    r" (?:\{\w{1,60}=\"[^{}]{0,400}\}|[\w.-]{1,80}(?:/[\w.$\[\]-]{1,80}){1,4}) (?=\S)"
)
_CHINESE = lazy(r"[\u2e80-\uffef]")
_DASH_OF_FLAG = lazy(r"(?<![^\s\"'=(,\[])[\u2013\u2014](?=[A-Za-z])")
_ESCAPED = 3  # times that a page of a page may have escaped its text
# Mail programs and word processors put these in place of the plain ones.
_TYPESET = str.maketrans("\u00a0\u2007\u202f\u2018\u2019\u201c\u201d\u2013", "   ''\"\"-")
_NUMBERED = lazy(r"[-_]\d+$")
_LOOK = 2_000  # lines that tell which wrappers a text has
_MOST_NAMES = 16


def clean(lines: Sequence[str]) -> list[str]:
    """The lines of a whole text without what was added around them. See the module; counts of lines stay."""
    return Cleaner(lines).clean(lines)


class Cleaner:
    """Decides from the first lines of a text which wrappers it has, and takes them off any of its lines."""

    def __init__(self, head: Sequence[str]) -> None:
        looked = [_controls(line) for line in head[:_LOOK]]
        self._steps: list[Callable[[str], str]] = []
        self._naming: list[tuple[int, Gutter]] = []  # those that name whose line it is, and the step that they are
        filled = [line for line in looked if line.strip()]
        if _share(filled, lambda line: line.startswith(">") and _QUOTE.match(line)) >= 0.1:
            self._steps.append(lambda line: _QUOTE.sub("", line, count=1))
        looked = filled = self._apply(filled)
        filled = self._front(filled)
        looked = filled
        if _share(looked, lambda line: "&" in line and _ENTITY.search(line)) > 0:
            self._steps.append(_unescape)
        if any("<" in line and _TAG.search(line) for line in looked):
            self._steps.append(lambda line: _TAG.sub("", line))
        if any(_FENCE.match(line) for line in looked):
            self._steps.append(lambda line: "" if _FENCE.match(line) else line)
        if filled and _share(filled, lambda line: line.startswith(("    ", "\t"))) >= 0.9:
            self._steps.append(lambda line: line[4:] if line.startswith("    ") else line.removeprefix("\t"))
        filled = self._apply(filled)
        if any(_POD.match(line) for line in filled):
            self._take_off(taking_off(_POD))
        if _composed(filled):
            self._take_off(taking_off(_COMPOSE))
        if any(_CRI.match(line) for line in filled):
            self._steps.append(lambda line: _CRI.sub(r"\g<stamp> ", line, count=1))
        if _share(filled, _STREAM.match) >= 0.9:
            self._steps.append(lambda line: _STREAM.sub(r"\g<stamp> ", line, count=1))
        if any(line.startswith("{") and message_of(line) is not None for line in filled):
            self._steps.append(_unpacked)
        if any("\\n" in line and "\n" in printed_line(line) for line in filled):
            self._steps.append(printed_line)
        filled = self._front(filled)
        if any(_PROMPT.match(line) for line in filled):
            self._steps.append(lambda line: _PROMPT.sub("", line, count=1))
        self._unwrap = Unwrap(self._apply(filled))

    def _front(self, filled: list[str]) -> list[str]:
        """Take off what stands in front of all lines: numbers, names of files, marks of a diff, hosts."""
        for find in (gutter, hosts):
            found = find(filled)
            if found is not None:
                self._take_off(found)
                filled = [found.step(line) for line in filled]
        return filled

    def _take_off(self, gutter: Gutter) -> None:
        if gutter.naming is not None:
            self._naming.append((len(self._steps), gutter))
        self._steps.append(gutter.step)

    def streams(self, lines: Sequence[str]) -> list[str]:
        """Of each line the pod, service, host or file that it is said to come from; nothing where all are of one."""
        names: list[str] = []
        for before, naming in self._naming:
            shown = self._apply([_controls(line) for line in lines], before)
            names = [naming.name_of(line) for line in shown]
            if len(set(names) - {""}) > 1:
                break
        else:
            return []
        for index, name in enumerate(names):  # a line without a name goes on with what stands above it
            names[index] = name or (names[index - 1] if index else "")
        return names

    @property
    def plain(self) -> bool:
        """Whether no wrapper was seen: then only control characters need to be taken off."""
        return not self._steps and self._unwrap.width is None

    def clean(self, lines: Sequence[str]) -> list[str]:
        """The lines without wrappers and control characters, and whole where they were broken at a width."""
        whole = self._unwrap.lines(self._apply([_controls(line) for line in lines]))
        return [behind_bars(line) if "%|" in line else line for line in whole]

    def _apply(self, lines: list[str], steps: int | None = None) -> list[str]:
        for step in self._steps[:steps]:
            lines = [step(line) for line in lines]
        return lines


def _controls(line: str) -> str:
    """A line as the terminal last showed it."""
    if line.isascii() and line.isprintable() and "[" not in line:
        return line.rstrip()
    if "\x1b" in line:
        line = _RIGHT.sub(lambda found: " " * int(found[1] or 1), line) if "C" in line else line
        line = _ANSI.sub("", _TO_START.sub("\r", line) if "G" in line else line)
    if "\b" in line:
        line = rubbed_out(line)
    if "\r" in line:
        return "\n".join(_controls(part) for part in shown(line).split("\n"))
    if "m" in line and "[" in line:
        line = _BARE_ANSI.sub("", line)
    line = (line if line.isprintable() else _CONTROL.sub("", line)).rstrip()
    if not line.isascii():
        line = _plain(line)
    return line


def _plain(line: str) -> str:
    """A line without what word processors and chats put in: typeset quotes and dashes, an emoji in front."""
    if _CHINESE.search(line):  # its own quotes are meant so
        line = line.replace("\u00a0", " ")
    else:
        line = _DASH_OF_FLAG.sub("--", line).translate(_TYPESET)
    return _EMOJI.sub("", line, count=1)


def _unescape(line: str) -> str:
    if "&" not in line:
        return line
    import html

    for _ in range(_ESCAPED):
        line, before = html.unescape(line), line
        if line == before:
            break
    return line


def _share(lines: Sequence[str], test: Callable[[str], object]) -> float:
    return sum(1 for line in lines if test(line)) / len(lines) if lines else 0.0


def _composed(lines: Sequence[str]) -> bool:
    """Whether lines begin with a service's name and a bar, as `docker compose logs` prints them."""
    names = Counter(match["name"] for line in lines if (match := _COMPOSE.match(line)))
    if not names or len(names) > _MOST_NAMES:
        return False
    count = sum(names.values())
    if count >= 0.5 * len(lines) and count >= 3:
        return True
    return count >= 2 and all(_NUMBERED.search(name) for name in names)


def _unpacked(line: str) -> str:
    message = message_of(line) if line.startswith("{") else None
    return line if message is None else message.replace("\r\n", "\n")
