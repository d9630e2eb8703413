"""Logs pasted as a program prints a string: repr() of Python, a JSON string, a list of lines, a CompletedProcess.

Such a text has "\\n" written out, and quotes around. It is read as what the string holds when nothing but strings,
brackets and names stands there, and when that looks like something a server or a tool printed: a model's answer is
printed the same way, and what it says was not logged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns import weights
from infradoc_rules.patterns.prefix import take_off

MOST_CHARACTERS = 8 << 20
_STRING = lazy(
    r"(?P<kind>[bBuUrRfF]{0,2})(?:'''(?P<a>(?:[^\\]|\\.)*?)'''|\"\"\"(?P<b>(?:[^\\]|\\.)*?)\"\"\""
    r"|'(?P<c>(?:[^'\\]|\\.)*)'|\"(?P<d>(?:[^\"\\]|\\.)*)\")",
    re.DOTALL,
)
_ESCAPE = lazy(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
# What may stand between the strings of a list, a dict or an object.
_BETWEEN = lazy(r"^[\s\[\](){},:=;+\\]*(?:[\w.<>-]{1,60}(?:[\s\[\](){},:=;+\\]+|$)){0,8}$")
_INSIDE = 0.6  # of the characters are in strings
_MOST_BETWEEN = 600  # characters
_BROKEN = lazy(r"\\n|\\r|\n")
_ANSWER_KEYS = frozenset(
    {"choices", "messages", "prompt", "generated_text", "object", "role", "finish_reason", "log_history"}
)
_OUTPUTS = frozenset({"stdout", "stderr"})
_LOOKED = 4_000  # characters at the beginning that tell quickly whether a text can be such a thing
_PRINTED = lazy(
    r"(?m)^Traceback \(most recent call last\):|^\s*File \"[^\"]{1,200}\", line \d+|NVIDIA-SMI|^# (?:HELP|TYPE) "
    r"|^(?:\$ )?(?:python3? -m |vllm serve|sglang|docker run|llama-server|lmdeploy serve|trtllm-serve)"
    r"|NCCL (?:INFO|WARN)"
    r"|^\S*(?:Error|Exception): |^[a-z]\w*:\w+(?:\{[^}]*\})? [\d.e+]+$|^(?:llama|ggml|srv|slot|main)[\w ]*: "
)


def printed(lines: Sequence[str]) -> list[str] | None:
    """The lines inside, when a whole text is string literals; None when it is not."""
    text = "\n".join(lines).strip()
    head = text[:_LOOKED]
    if not text or len(text) > MOST_CHARACTERS or not ("'" in head or '"' in head):
        return None
    if head[0] not in "'\"[({bBuUrRfF" and not _assigned(head):
        return None
    strings = _strings(text)
    if not strings:
        return None
    whole = len(strings) == 1
    if not whole and any(one in _ANSWER_KEYS for one in strings):
        return None
    broken = [one for one in strings if "\n" in one]
    if (
        not whole and not broken and "{" in head.split('"', 1)[0].split("'", 1)[0]
    ):  # settings, scores, what docker inspect says
        return None
    texts = strings if whole or not broken else broken
    out = [line for one in texts for line in one.removesuffix("\n").split("\n")]
    if whole and len(out) < 2 and len(lines) < 2 and not _looks_printed(out):
        return None
    return out if _looks_printed(out) or (whole and len(out) > 1) or (broken and _OUTPUTS & _keys(text)) else None


def _keys(text: str) -> set[str]:
    """The names that are given a string at the beginning of a text."""
    return set(re.findall(r"[\"']?(\w{1,20})[\"']? ?[:=] ?[bu]?[\"']", text[:_LOOKED]))


def _assigned(head: str) -> bool:
    """`stderr = '...'`, `CompletedProcess(args=..., stderr='...')`, `>>> print(x)` aside."""
    return (
        re.match(
            r"(?:>>> ?|\$ ?|Out\[\d+\]: ?)?[\w.]{1,60} ?(?:[=:] ?|\()[\s(\[{]*(?:[\w.]{1,40}=)?[bBuUrRfF\[{'\"]", head
        )
        is not None
    )


def _strings(text: str) -> list[str]:
    """All string literals of a text; none when anything else but brackets, commas and names stands between them."""
    found: list[str] = []
    at = inside = 0
    for match in _STRING.finditer(text):
        if match.start() - at > _MOST_BETWEEN or not _BETWEEN.match(text[at : match.start()]):
            return []
        raw = next(match[name] for name in "abcd" if match[name] is not None)
        found.append(_unescaped(raw, match["kind"].lower()))
        at = match.end()
        inside += at - match.start()
    if inside < _INSIDE * len(text):
        return []
    return found if len(text) - at <= _MOST_BETWEEN and _BETWEEN.match(text[at:]) else []


def _unescaped(raw: str, kind: str) -> str:
    if "r" in kind or "\\" not in raw:
        return raw
    text = _ESCAPE.sub(_character, raw)
    if "b" in kind:
        try:
            return text.encode("latin-1").decode("utf-8", errors="replace")
        except UnicodeEncodeError:
            return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if "\\u" in raw else text


def _character(match: re.Match[str]) -> str:
    two, four, eight, octal, plain = match.groups()
    if plain is not None:
        return _PLAIN.get(plain, plain)
    code = int(two or four or eight or "0", 16) if octal is None else int(octal, 8)
    return chr(code) if code <= 0x10FFFF else "\ufffd"


def _looks_printed(lines: Sequence[str]) -> bool:
    if any(_PRINTED.search(line[:300]) for line in lines[:2_000]):
        return True
    found = [take_off(line) for line in lines[:200] if line.strip()]
    if sum(1 for prefix in found if prefix.stamp is not None or prefix.level) >= max(1, len(found) // 5):
        return True
    return max(weights(lines).values(), default=0.0) >= 1


def printed_line(line: str) -> str:
    """A line of a text that is one such string, with breaks where "\\n" was written; others as they are.

    Only strings with a break and a look of a log: see the module.
    """
    text = line.strip().rstrip(",")
    if len(text) < 20 or not _BROKEN.search(text) or text[-1:] not in "'\"]})":
        return line
    found = printed([text])
    return line if found is None else "\n".join(found)
