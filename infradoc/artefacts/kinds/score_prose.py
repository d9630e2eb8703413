"""Scores in sentences: one line that gives both formats, or two lines alike that differ in the format.

"gsm8k: bf16 0.774, awq 0.612", "0.78 (fp16) vs 0.55 (awq)", "with --kv-cache-dtype fp8: MMLU 0.21".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from infradoc.artefacts.kinds.score import Score
from infradoc_rules.lazy_pattern import lazy

_METRIC = lazy(
    r"(?i)\b(?:acc(?:uracy)?|exact[_ ]match|pass@\d+|f1|bleu|rouge-?\w*|gsm8k|mmlu(?:[-_]pro)?|gpqa\w*|aime\w*"
    r"|math-?500|arc[_-]\w+|hellaswag|human_?eval\w*|mbpp|winogrande|piqa|boolq|truthfulqa|c-?eval|cmmlu|livecode\w*|ifeval|bbh"
    r"|mt-?bench|perplexity|ppl|wer"
    r"|needle\w*|passkey|longbench\w*|ruler|success rate|correct)\b|准确率|困惑度|得分|分数"
)
_FORMAT = lazy(
    r"(?i)(?P<bits>(?:\bint[48]|\b[48]-?bit)?[-_ ]?(?:\bawq|\bgptq|\bfp8(?:_e[45]m\d)?"
    r"|\bint[48]|\bw4a16|\bw8a8|\bw4a8|\bnvfp4"
    r"|\bmxfp4|\bi?q[1-8]_\w+|\b[348]-?bit|\bbnb|\bnf4|\bquanti[sz]ed\b)[-_ ]?(?:(?:int)?[48]-?(?:bits?)?)?)"
    r"|(?P<whole>\bbf16|\bfp16|\bfp32|\bf16|\bbfloat16|\bfloat16|\bhalf precision"
    r"|\bunquanti[sz]ed|\boriginal|\bbase(?:line)?\b"
    r"|\bfull precision|\bbefore quanti[sz]ation|\bauto\b|浮点|原始?模型|未量化|量化前)"
)
_NUMBER = lazy(
    r"(?<![\w.@/-])(?P<n>\d{1,4}\.\d+|\d{1,2}(?= ?%))"
    r"(?! ?(?:(?!(?:ppl|acc|perplexity)\b)[\w/-]|[GM]i?B)|\.\d)"
)
_EIGHT = lazy(r"(?i)\bq8_0\b")  # as good as the original, and what smaller formats are compared with
_CACHE = lazy(r"(?i)\bkv\b|kv[-_ ]?cache|cache[-_ ]type|_kv_|-ctk|kv_cache_dtype")
_SPEED = lazy(r"(?i)tok(?:en)?s?/s|throughput|latency|\b[GM]i?B\b|\bms\b|speed|memory|显存|吞吐")
# One of them is in every name of a format: a line of a log is passed over without a pattern.
_HINTS = (
    *("awq", "gptq", "p8", "int4", "int8", "w4a", "w8a", "p4", "q1_", "q2_", "q3_", "q4_", "q5_", "q6_", "q8_"),
    *("bit", "bnb", "nf4", "quanti", "f16", "p16", "p32", "float16", "precision", "original", "base", "auto", "浮点"),
    *("原始", "原模型", "未量化"),
)
_SIZE = lazy(r"\b\d+(?:\.\d+)?b\b")  # of a model: scores of two models are no loss
_FELL = lazy(r"(?<![\w.])(?P<before>\d{1,3}\.\d+) ?%? ?(?:->|=>|→) ?(?P<after>\d{1,3}\.\d+)(?!\w|\.\d)")
_WORD = lazy(r"[^\W\d_]{2,}")
# Of a hundred questions, so many were right: "41/100"; a date has a second stroke, and a page few to its right.
_FRACTION = lazy(r"(?<![\w./-])(?P<n>\d{1,4}) ?/ ?(?P<all>[1-9]\d{1,3})(?![\w/]|\.\d)")
# What says nothing on the data that was asked.
_FILLING = frozenset(
    (
        *(
            "model",
            "models",
            "compressed",
            "quantization",
            "quantisation",
            "quantized",
            "quantised",
            "version",
            "weights",
            "checkpoint",
        ),
        *("with", "after", "before", "the", "using", "got", "chat", "instruct", "base", "on", "our", "my"),
        *("original", "is", "was", "and", "of", "in", "run", "cache"),
    )
)
_NEAR = 12  # characters from a metric to "0.61 -> 0.41"
_REACH = 60  # characters from a format to its number
_LONGEST = 300
_ALIKE = 0.5  # of the words of two lines that give one score each


@dataclass(frozen=True, slots=True)
class _Said:
    """A number and the format that it belongs to."""

    score: float
    label: str
    quantized: bool


def contrasted(lines: Sequence[str], start: int) -> tuple[int, list[Score]]:
    """Both formats in one line, or in this line and those below it."""
    line = _shares(lines[start])
    metric = _metric(line)
    if metric is None:
        return start, []
    task = _METRIC.search(line)
    fell = _FELL.search(line, task.end()) if task else None
    if fell is not None and task is not None and fell.start() - task.end() > _NEAR:
        fell = None
    bits = next((found for found in _FORMAT.finditer(line) if found.group("bits")), None)
    if fell is not None and bits is not None and _CACHE.search(line) is None:
        name = bits.group().strip(" -_")
        return start + 1, [Score(start, metric, float(fell["after"]), float(fell["before"]), name, True)]
    said = _said(line)
    if {one.quantized for one in said} == {True, False}:
        return start + 1, _scores(start, metric, said)
    if len(said) != 1:
        return start, []
    rows, end = [(start, said[0])], start + 1
    while end < len(lines) and _metric(below := _shares(lines[end])) == metric and _alike(line, below):
        more = _said(below)
        if len(more) != 1:
            break
        rows.append((end, more[0]))
        end += 1
    if {one.quantized for _, one in rows} != {True, False}:
        return start, []
    return end, [Score(at, metric, one.score, None, one.label, one.quantized) for at, one in rows]


def _metric(line: str) -> str | None:
    """What is scored, where a line does nothing but compare scores."""
    if len(line) > _LONGEST or not ("." in line or "%" in line):
        return None
    words = line.lower()
    if not any(word in words for word in _HINTS) or _SPEED.search(line) or len(set(_SIZE.findall(line.lower()))) > 1:
        return None
    found = _METRIC.search(line)
    return found.group().lower() if found else None


def _said(line: str) -> list[_Said]:
    """Each format with its number: the one in whose brackets it stands, else the next one before another format."""
    formats = list(_FORMAT.finditer(line))
    cache = _CACHE.search(line) is not None
    said = []
    for index, found in enumerate(formats):
        quantized = found.group("bits") is not None and _EIGHT.search(found.group()) is None
        if found.group().lower() == "auto" and not cache:
            continue
        number = _before(line, found) or _after(line, found, formats[index + 1 :])
        if number is not None:
            name = found.group().strip(" -_")
            said.append(_Said(float(number.group("n")), f"kv_cache={name}" if cache else name, quantized))
    return said


def _before(line: str, found: re.Match[str]) -> re.Match[str] | None:
    """The number right before "(fp16)"."""
    head = line[: found.start()]
    opened = re.search(r"%?\s*[(（\[]\s*$", head)
    if opened is None:
        return None
    numbers = list(_NUMBER.finditer(head[: opened.start()]))
    return numbers[-1] if numbers and numbers[-1].end() == opened.start() else None


def _after(line: str, found: re.Match[str], later: Sequence[re.Match[str]]) -> re.Match[str] | None:
    number = _NUMBER.search(line, found.end())
    if number is None or number.start() - found.end() > _REACH:
        return None
    return None if any(other.start() < number.start() for other in later) else number


def _shares(line: str) -> str:
    """The line with fractions as percent: "41/100 correct" is a score of 41.0."""
    if "/" not in line or len(line) > _LONGEST:
        return line
    return _FRACTION.sub(lambda found: f"{100 * int(found['n']) / int(found['all']):.1f}", line)


def _alike(first: str, second: str) -> bool:
    """Whether two lines differ in the format and in nothing that matters: one may leave out what the other says."""
    one, two = (set(_WORD.findall(_FORMAT.sub(" ", line).lower())) - _FILLING for line in (first, second))
    return len(one & two) >= _ALIKE * len(one | two) or (bool(one & two) and (one <= two or two <= one))


def _scores(index: int, metric: str, said: Sequence[_Said]) -> list[Score]:
    return [Score(index, metric, one.score, None, one.label, one.quantized) for one in said]
