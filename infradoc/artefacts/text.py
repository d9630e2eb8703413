"""Lines as a tool wrote them, from lines as they were pasted: terminal control, markup and container prefixes removed.

Nothing here changes the number of lines, so that every place named in a report is one of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

from infradoc_rules.lazy_pattern import lazy

_ANSI = lazy(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?|[@-_])")
# The escape character is lost in many pastes: "[1;36m(EngineCore_DP0 pid=1)[0;0m".
_BARE_ANSI = lazy(r"(?:\^\[|\\x1b|\\u001b|\\033|#x1B)?\[[0-9]{1,2}(?:;[0-9]{1,3}){0,3}m(?!\])")
_CONTROL = lazy(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
_ENTITY = lazy(r"&(?:lt|gt|amp|quot|nbsp|apos|#\d{1,6}|#x[0-9a-fA-F]{1,6});")
_TAG = lazy(r"</?(?:pre|code|br|details|summary|p|div|span|b|i|li|ul|ol|td|tr|table|blockquote)\b[^<>]{0,200}/?>")
_QUOTE = lazy(r"^(?:> ?){1,4}(?!>)")
_FENCE = lazy(r"^\s{0,8}(?:`{3,}|~{3,})\s*[\w+#.-]{0,40}\s*$")
_PROMPT = lazy(r"^(?:\(\w[\w.-]{0,40}\) )?(?:[\w.-]{1,60}@[\w.-]{1,60}:[^\s#$]{0,200}[#$]|\$) (?=\S)")
_COMPOSE = lazy(r"^(?P<name>[A-Za-z][\w.-]{0,80}?) {0,60}\| ?")
_POD = lazy(r"^\[(?P<name>pod/[\w./-]{1,200})\] ?")
_CRI = lazy(r"^(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)) (?:stdout|stderr) [FP] ")
_ESCAPED = 3  # times that a page of a page may have escaped its text
# Mail programs and word processors put these in place of the plain ones.
_TYPESET = str.maketrans("\u00a0\u2007\u202f\u2018\u2019\u201c\u201d\u2013", "   ''\"\"-")
_NUMBERED = lazy(r"[-_]\d+$")
_LOOK = 2_000  # lines that tell which wrappers a text has
_MOST_NAMES = 16
_RECORD_LIMIT = 1 << 20
_MESSAGE_KEYS = ("log", "MESSAGE", "message", "msg", "textPayload", "line")


def clean(lines: Sequence[str]) -> list[str]:
    """The lines of a whole text without what was added around them. See the module; counts of lines stay."""
    return Cleaner(lines).clean(lines)


class Cleaner:
    """Decides from the first lines of a text which wrappers it has, and takes them off any of its lines."""

    def __init__(self, head: Sequence[str]) -> None:
        looked = [_controls(line) for line in head[:_LOOK]]
        self._steps: list[Callable[[str], str]] = []
        filled = [line for line in looked if line.strip()]
        if _share(filled, lambda line: line.startswith(">") and _QUOTE.match(line)) >= 0.1:
            self._steps.append(lambda line: _QUOTE.sub("", line, count=1))
        looked = filled = self._apply(filled)
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
            self._steps.append(lambda line: _POD.sub("", line, count=1))
        if _composed(filled):
            self._steps.append(lambda line: _COMPOSE.sub("", line, count=1))
        if any(_CRI.match(line) for line in filled):
            self._steps.append(lambda line: _CRI.sub(r"\g<stamp> ", line, count=1))
        if any(line.startswith("{") and _record(line) is not None for line in filled):
            self._steps.append(_unpacked)
        if any(_PROMPT.match(line) for line in filled):
            self._steps.append(lambda line: _PROMPT.sub("", line, count=1))

    @property
    def plain(self) -> bool:
        """Whether no wrapper was seen: then only control characters need to be taken off."""
        return not self._steps

    def clean(self, lines: Sequence[str]) -> list[str]:
        """The lines without wrappers and control characters."""
        return self._apply([_controls(line) for line in lines])

    def _apply(self, lines: list[str]) -> list[str]:
        for step in self._steps:
            lines = [step(line) for line in lines]
        return lines


def _controls(line: str) -> str:
    """A line as the terminal last showed it."""
    if line.isascii() and line.isprintable() and "[" not in line:
        return line.rstrip()
    if "\r" in line:
        # A progress bar rewrites its line: what stands at the end is the last part that is not blank.
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "m" in line and "[" in line:
        line = _BARE_ANSI.sub("", line)
    line = (line if line.isprintable() else _CONTROL.sub("", line)).rstrip()
    if not line.isascii():
        plain = line.translate(_TYPESET)
        line = plain if plain.isascii() else line.replace("\u00a0", " ")
    return line


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


def _record(line: str) -> str | None:
    """The message in a JSON log record (docker, journald, cloud loggers, TGI); None when the line is none."""
    if not (line.startswith("{") and line.rstrip().endswith("}")) or len(line) > _RECORD_LIMIT:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    inner = data.get("fields")
    for holder in (data, inner if isinstance(inner, dict) else {}):
        message = next((holder[key] for key in _MESSAGE_KEYS if isinstance(holder.get(key), str)), None)
        if message is not None and _is_log(data, holder):
            return _with_head(data, message)
    return None


def _is_log(data: dict[str, object], holder: dict[str, object]) -> bool:
    """A bare {"message": ...} may be a server's answer; a log record has a time, a level or a stream beside it."""
    return "log" in holder or any(
        key in data
        for key in ("stream", "time", "timestamp", "ts", "level", "severity", "PRIORITY", "_PID", "@timestamp")
    )


def _with_head(data: dict[str, object], message: str) -> str:
    stamp = next((data[key] for key in ("time", "timestamp", "@timestamp", "ts") if isinstance(data.get(key), str)), "")
    level = next((data[key] for key in ("level", "severity") if isinstance(data.get(key), str)), "")
    target = data.get("target")
    parts = [str(stamp), str(level).upper()] if level else []
    if isinstance(target, str):
        parts.append(f"{target}:")
    return " ".join([*(part for part in parts if part), message.rstrip("\r\n")])


def _unpacked(line: str) -> str:
    message = _record(line) if line.startswith("{") else None
    return line if message is None else message.replace("\r\n", "\n")
