"""Puts lines together again that a terminal or a mail program broke at its width.

A terminal breaks after exactly so many characters, a mail program between words. Nothing marks such a break, so it is
undone only where it is certain:
  - the text shows a width: several lines end exactly there (terminal), or each line that goes on could not have taken
    the first word of the next one (mail);
  - the next line begins as no line of a log, a traceback, a table, a command or a page of metrics begins.
The joined text stands on the first line and the others are left blank, so that numbers of lines hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns.prefix import take_off

NARROWEST, WIDEST = 60, 260  # columns of a terminal
_MAIL_NARROWEST, _MAIL_WIDEST = 64, 100
_LEAST = 3  # breaks that a width must explain
_SURE = 0.8  # of the lines at the width, and of those that may go on
_LONGER = 0.02  # of lines may be longer than the width: those that were joined already, or written later
_MOST_PARTS = 400  # lines that one line was broken into
_LOOK = 2_000  # lines of a text without a width that are looked through for a command
_SEEN = 400  # characters of a line that tell whether it begins something
_SHORTEST = 5  # lines of a part of a paste whose width is looked for
_TRIED = 3  # lengths, the longest first, that may be the width
_USUAL = frozenset({80, 100, 120, 132, 140, 160, 180, 200})  # widths that one break alone may show
# How lines begin that are none's continuation, beside those with a stamp, a level or a process in front.
_BEGINS = lazy(
    r'\s*(?:File "|Traceback \(|Loading |Capturing |The above exception|During handling|# ?\w|\$ |[-=+*_~#]{4}'
    r"|[|+│├└┌╒═╔╭]"
    r"|(?:python3? -|vllm (?:serve|bench)|sglang serve|(?:docker|podman|kubectl) [a-z]+ |torchrun -|deepspeed -"
    r"|accelerate launch|mpirun -|srun -|export [A-Z]|sudo \w|cd [/~.]|nvidia-smi|lmdeploy serve|ollama (?:serve|run)"
    r"|trtllm-serve |curl -)"
    r"|\{['\"]|\d{1,3}%\||\[\d{1,6}\]\d|\[[A-Z]{2,12}\]|(?:GET|POST|PUT) [h/]|time="
    r"|(?:srv|slot) |(?:llama|ggml|llm|clip|common|sampler|main|system|build|perplexity)\w*\b[^:]{0,40}:\s"
    r"|[a-z]\w*:\w{3,120}(?:\{\w+=\"| [-+\d])|[a-z]\w{3,120}\{\w+=\""
    r"|[\w.-]{1,60}:\d{1,8}:\d{1,8} \[|NCCL version |\[?\d{2,4}[-/]\d\d[-/ T]"
    r"|#\d+ |[A-Z]{2,10}:\s|[\w.-]{1,60}: {0,3}(?:INFO|WARN|ERROR|error)|\.{3}|`{3}|-{3}|<\w)"
)
_RAISED = lazy(r"[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit|Warning)\b(?::|$)")
_FRAGMENT = lazy(r"^\s*(?:[-–—.,:;)\]}'\"/=\\]|\d|[a-z_])")
_COMMAND = lazy(
    r"^\s*(?:[A-Z_][A-Z0-9_]*=\S* )*(?:sudo )?(?:exec )?(?:nohup )?(?:python3?[\d.]* -m |vllm serve|sglang serve"
    r"|docker run|podman run"
    r"|text-generation-launcher|lmdeploy serve|trtllm-serve|ollama |torchrun|deepspeed |accelerate launch|mpirun|srun "
    r"|\S*llama-server|\S*llama-cli|python3? )"
)
_ROW = lazy(r"^\s*\S+(?: \S+)*(?: {2,}\S+(?: \S+)*){3,}$")  # columns, at least two blanks apart
_UNVALUED = lazy(r"[a-z][\w:]{2,120}\{[^{}]*\}$")  # a sample of a page of metrics without its value
_VALUES = lazy(r"[\d.]{1,24}(?:e[+-]?\d{1,3})?(?: \d{10,16})?$")
_LIST = lazy(r"\s+(?:- )?[a-z]\w{0,40}: \[\"")  # of YAML, in which no line of a list begins at the margin
_FLAG = lazy(r"^\s*--?[a-zA-Z]")
_LAST_FLAG = lazy(r"\s--?[a-zA-Z][\w-]*$")


class Unwrap:
    """How the lines of a text are broken, by its first ones: `width` is None where they are not."""

    def __init__(self, head: Sequence[str]) -> None:
        filled = [line for line in head if line.strip()]
        self.width = _terminal(filled)
        self.between_words = False
        if self.width is None:
            self.width = _mail(filled)
            self.between_words = self.width is not None

    def lines(self, lines: Sequence[str]) -> list[str]:
        """As many lines, each whole one on the first of its parts."""
        if self.width is not None:
            return self._joined(lines)
        # A launch command may be broken, or one of several things in a paste; a long log holds none below its head.
        head = lines[:_LOOK]
        told = any(_COMMAND.match(line) or len(line) in _USUAL or ": [" in line for line in head)
        out = self._joined(head) if told else list(head)
        for start, end in _blocks(head):
            inner = Unwrap(head[start:end])
            if inner.width is not None:
                out[start:end] = inner._joined(head[start:end])
        return [*out, *lines[_LOOK:]]

    def _joined(self, lines: Sequence[str]) -> list[str]:
        out = list(lines)
        first = -1  # the place of the line that is being put together
        parts = 0
        for index, line in enumerate(lines):
            if first >= 0 and parts < _MOST_PARTS and self._goes_on(lines[index - 1], line, out[first]):
                out[first] += self._between(lines[index - 1]) + (line.lstrip() if self.between_words else line)
                out[index] = ""
                parts += 1
            else:
                first, parts = (index, 0) if line.strip() else (-1, 0)
        return out

    def _between(self, before: str) -> str:
        if self.width is None:
            return "" if len(before) in _USUAL else " "
        if self.between_words:
            return " "
        # Copying strips the blanks that stood in the last columns; of all lines, where each broke before the same word.
        stripped = self.width + 1 in _USUAL and self.width not in _USUAL
        return " " * (self.width + stripped - len(before))

    def _goes_on(self, before: str, line: str, whole: str) -> bool:
        if not line.strip() or not before:
            return False
        if self.width is None:
            return _command_goes_on(before, line, whole)
        if before[:1] in "|+":
            full = _open_row(before, line)
        elif self.between_words:
            full = _is_full(before, line, self.width)
        else:
            full = len(before) == self.width or (
                len(before) == self.width - 1 and (bool(_FRAGMENT.match(line)) or take_off(whole).stamp is not None)
            )
        return full and not begins(line, whole, self.between_words)


def _blocks(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The runs of lines between blank ones, where there are several; those of a few lines show no width."""
    edges = [-1, *(index for index, line in enumerate(lines) if not line.strip()), len(lines)]
    found = [(before + 1, after) for before, after in pairwise(edges) if after - before > _SHORTEST]
    return found if len(edges) > 2 else []


def begins(line: str, before: str, between_words: bool = False) -> bool:
    """Whether a line is surely the first of its own: `before` is the line above it, as far as it is put together."""
    line = line[:_SEEN]
    if between_words and line[:1] in " \t":
        return True
    if before[:1] and before[:1] in "|+":  # a row of a table is whole where its last bar is
        return not _open_row(before, line)
    if not take_off(before).message.strip():  # nothing but a prefix: what it belongs to comes now
        return False
    if before.endswith("}") and line[:1].isdigit() and _UNVALUED.match(before) and _VALUES.match(line):
        return False
    if _BEGINS.match(line) or (_ROW.match(line) and _ROW.match(before[:_SEEN])):
        return True
    if _RAISED.match(line) and take_off(before).stamp is None:  # under a logger's prefix the exception has one as well
        return True
    prefix = take_off(line)
    if prefix.stamp is not None or prefix.process or (prefix.level and prefix.message != line and line[:1].isalpha()):
        return True
    return len(line) > 8 and line[:6] == before[:6]  # rows of a page or a table


def _open_row(before: str, line: str) -> bool:
    return line[:1] not in "|+" and line[-1:] in ("|", "+")


def _terminal(lines: Sequence[str]) -> int | None:
    """The width at which many lines end, and none goes beyond."""
    pairs = list(pairwise(lines))
    lengths = Counter(map(len, lines))
    for width in sorted((size for size in lengths if NARROWEST <= size <= WIDEST), reverse=True)[:_TRIED]:
        if sum(count for size, count in lengths.items() if size > width) > _LONGER * len(lines):
            break
        at = [pair for pair in pairs if len(pair[0]) == width and (pair[0][:1] not in "|+" or _open_row(*pair))]
        going = [pair for pair in at if not begins(pair[1], pair[0])]
        # The last part of a line may be of full width by chance, and so may a few whole lines.
        if len(going) < (2 if width in _USUAL else _LEAST) or len(going) < _SURE * len(at):
            continue
        short = [pair for pair in pairs if len(pair[0]) < width - 1 and pair[0][:1] not in "|+"]
        other = sum(1 for before, line in short if not begins(line, before))
        if other < len(going) and (width in _USUAL or _within_words(going) or (not other and len(set(going)) > _LEAST)):
            return width
    return None


def _within_words(going: Sequence[tuple[str, str]]) -> bool:
    """Whether a line goes on with a blank: a mail program drops the one at which it breaks."""
    return any(line[:1] == " " != line[1:2] for _, line in going)


def _mail(lines: Sequence[str]) -> int | None:
    """The width that explains each break between words: most lines fill it, and the next word did not fit."""
    if _beyond(lines, _MAIL_WIDEST) > _LONGER * len(lines):
        return None
    votes: Counter[int] = Counter()
    candidates = 0
    for before, line in pairwise(lines):
        if begins(line, before, between_words=True):
            continue
        candidates += 1
        low, high = len(before) if " " in before else 0, len(before) + len(line.split(None, 1)[0])
        for width in range(max(low, _MAIL_NARROWEST), min(high, _MAIL_WIDEST) + 1):
            votes[width] += 1
    if not votes:
        return None
    width, count = max(votes.items(), key=lambda item: (item[1], -item[0]))
    if count < _LEAST or count < _SURE * candidates:
        return None
    return width if _beyond(lines, width) <= _LONGER * len(lines) else None


def _beyond(lines: Sequence[str], width: int) -> int:
    """How many lines are longer, and not for a last word that no line could hold."""
    return sum(1 for line in lines if len(line) > width and len(line.rpartition(" ")[0].rstrip()) > width)


def _is_full(before: str, line: str, width: int) -> bool:
    return len(before) + 1 + len(line.split(None, 1)[0]) > width


def _command_goes_on(before: str, line: str, whole: str) -> bool:
    """A launch command that was broken once or twice: at a usual width within a word, or at a flag."""
    if len(before) in _USUAL and _FRAGMENT.match(line) and _is_open(whole):
        return not begins(line, whole)
    if line[:1] in ('"', "'") and _LIST.match(whole) and whole.count("[") > whole.count("]"):
        return True
    if not _COMMAND.match(whole) or before.endswith(("\\", "^", "`")) or line.startswith(("#", "$")):
        return False
    if _FLAG.match(line) or (_LAST_FLAG.search(before) and not begins(line, whole)):
        return True
    return len(before) in _USUAL and bool(_FRAGMENT.match(line)) and not begins(line, whole)


def _is_open(whole: str) -> bool:
    """Whether a line ends inside brackets, and not where one breaks them by hand."""
    depth = sum(map(whole.count, "([{")) - sum(map(whole.count, ")]}"))
    return depth > 0 and whole[-1] not in ",([{"
