"""What stands in front of a log message, whoever wrote it: stamps, levels, processes, ranks, source files.

Loggers, launchers and container tools each add their own, in any order, so pieces are taken off one after another.
Python's `re` is used here, not RE2: every piece is anchored, has bounded repeats and nothing nested, and takes a
twentieth of the time that RE2 needs to give its groups back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST_PIECES = 8
_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL"
_WIDE = (
    # journalctl -o short-iso: 2026-11-30T12:00:00+0000 host vllm[123]:
    # A "Z" is of kubectl and docker, and "CUDA error:" behind it was logged; only the kernel has no number in brackets.
    r"(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[+-]\d\d:?\d\d) [\w.-]{1,80} "
    r"(?P<iunit>kernel(?=:)|[\w@./-]{1,80}(?=\[))(?:\[(?P<ipid>\d{1,8})\])?:(?= )",
    # [2026-06-26 03:12:40 TP0], 2024-08-26 19:21:02,114 -, 2024-08-26T19:21:02.123Z, 2026/01/02 03:04:05
    r"\[?(?P<full>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?)"
    r"(?P<ranks>(?:,? (?:TP|DP|PP|EP)\d{1,4}){0,4})(?:\]|,)?(?: (?:stdout|stderr) [FP](?= ))?(?: -(?= ))?",
    r"(?P<day>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?![\d:])",  # 11-29 20:34:30
    r"\[?(?P<us>\d\d/\d\d/\d{4}[- ]\d\d:\d\d:\d\d)\]?(?: -(?= ))?",  # [01/02/2025-12:34:56], 06/12/2024 10:20:30 -
    rf"\[?(?P<level>{_LEVELS})\]?(?:(?: -)?(?= )|:(?= |$)|$)",
)
_NARROW = (
    # Nov 30 12:00:00 host vllm[123]:
    r"(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) (?!(?:CUDA|HIP|NCCL|slot|srv|que) )[\w.-]{1,80} "
    r"(?P<unit>[\w@./-]{1,80})(?:\[(?P<upid>\d{1,8})\])?:",
    # moreutils' ts: Nov 30 12:00:00
    r"(?P<bare>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d)(?= )",
    # glog: W0618 10:20:30.123 4711 distributed/run.py:779]
    r"[IWEF]\d{4} (?P<clock>\d\d:\d\d:\d\d\.\d{3,9}) +\d{1,8} [\w./<>-]{1,120}:\d{1,6}\]",
    r"\[ {0,8}(?P<uptime>\d{1,9}\.\d{6})\]",  # dmesg
    r"\((?P<proc>[A-Za-z_][\w .:=-]{0,60}?) pid=(?P<pid>\d{1,8})(?:, ip=[\d.]{7,15})?\)",
    r"\((?P<proc2>(?:EngineCore|APIServer|Worker|RayWorker)\w{0,60})\)",
    r"\[(?P<rank>rank ?\d{1,5}|default\d{1,5}|RANK ?\d{1,5}|\d{1,4},\d{1,4})\](?:<std(?:out|err)>)?:?",
    r"\[?(?P<file>[\w./<>-]{1,120}\.(?:py|cpp|cc|cu|cuh|h|hpp|rs|go))(?::\d{1,6}){1,2}\]:?",
)
# Of the blanks behind a piece one belongs to it, the rest is the indentation of a traceback; stamps and levels are set
# in columns and take all.
_PIECE = re.compile("|".join([*(f"(?:{piece}) {{0,80}}" for piece in _WIDE), *(f"(?:{piece}) ?" for piece in _NARROW)]))
# The whole prefix of vLLM and of SGLang in one piece, because nearly all long logs are theirs.
USUAL = re.compile(
    r"(?:\((?P<proc>[A-Za-z_][\w .:=-]{0,60}?) pid=(?P<pid>\d{1,8})\) )?(?P<level>DEBUG|INFO|WARNING|ERROR) "
    r"(?P<day>\d\d-\d\d \d\d:\d\d:\d\d) \[?(?P<file>[\w./-]{1,120}\.py):\d{1,6}\] ?"
    r"|\[(?P<full>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<ranks>(?: (?:TP|DP|PP|EP)\d{1,4}){0,4})\] (?![\[(IWED])"
)
# The first character of any piece; most lines of a log without prefixes are told by it.
_FIRST = frozenset("[(TDINWECF0123456789JMAOS")


@dataclass(slots=True)
class Prefix:
    """What was taken off. `stamp` is (form, text) for `stamps.unix_time`; `process` tells interleaved writers apart."""

    message: str
    stamp: tuple[str, str] | None = None
    process: str = ""
    level: str = ""


_STAMPS = ("full", "day", "us", "syslog", "clock", "uptime")


def take_off(text: str) -> Prefix:
    """The message of a line, and what its prefixes say."""
    found = Prefix(text)
    at = 0
    if text[:1] not in _FIRST:
        return found
    usual = USUAL.match(text)
    if usual is not None:
        proc, pid, level, day, file, full, ranks = usual.groups()
        message = text[usual.end() :]
        if day is None:
            return Prefix(message, ("full", full), ranks.strip())
        return Prefix(message, ("day", day), f"{proc or ''}{pid or ''}{file}", level)
    for _ in range(_MOST_PIECES):
        piece = _PIECE.match(text, at)
        if piece is None or piece.end() == at:
            break
        at = piece.end()
        _keep(piece, found)
    if at:
        found.message = text[at:]
    return found


def _keep(piece: re.Match[str], found: Prefix) -> None:
    kind, value = piece.lastgroup, piece.group(piece.lastgroup or 0)
    if kind == "level":
        found.level = value
    elif kind in ("pid", "proc", "proc2", "rank", "file"):
        found.process += value if kind in ("rank", "file") else piece.group().strip()
    elif kind == "ranks":
        found.process += value.strip()
        found.stamp = found.stamp or ("full", piece.group("full"))
    elif kind in ("unit", "upid"):
        found.process += piece.group("unit") + (piece.group("upid") or "")
        found.stamp = found.stamp or ("syslog", piece.group("syslog"))
    elif kind in ("iunit", "ipid"):
        found.process += piece.group("iunit") + (piece.group("ipid") or "")
        found.stamp = found.stamp or ("full", piece.group("iso"))
    elif kind == "bare":
        found.stamp = found.stamp or ("syslog", value)
    elif kind in _STAMPS:
        found.stamp = found.stamp or (kind, value)
