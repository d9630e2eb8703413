"""Lines that a terminal wrote over: progress bars, and what was logged while one ran.

A bar rewrites its line with "\\r", and whoever logs meanwhile writes into the same line. Only bars are overwritten:
every other piece between two "\\r" was printed, and is a line of its own. Pieces are parted by "\\n" inside the line,
so that its number stays; the log scanner reads such a line as several.
"""

from __future__ import annotations

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.patterns.prefix import take_off

_TQDM = lazy(r"\d{1,3}%\|")
# pip, curl, Docker's layers, Rust's indicatif: a share, a rate or a drawn bar.
_BAR = lazy(r"\d{1,3}(?:\.\d{1,2})?%|\d ?(?:it/s|s/it|[kKMG]?i?B/s)\b|[█▏▎▍▌▋▊▉#=>]{4}|\d/\d{1,9}\b")
_BAR_LENGTH = 120  # characters; a log line with a percentage in it is longer, or has a prefix
# The end of tqdm's bar with another line right behind it: "... | 3/14 [00:02<00:07,  1.5it/s]INFO 03-04 10:00:00 ..."
_BEHIND_BAR = lazy(r"(%\|[^|\r\n]{0,200}\| *\d{1,12}\S{0,3}/\d{1,12}\S{0,3} \[[^\]\r\n]{3,80}\])(?=[^\s\]])")
_DIGITS = lazy(r"\d+")
_MOST_PIECES = 2_000


def shown(line: str) -> str:
    """A line with "\\r" as its pieces: of bars and counters the last state, everything else as it was printed."""
    pieces = [piece for piece in behind_bars(line).replace("\n", "\r").split("\r") if piece.strip()]
    kept: list[str] = []
    bar = ""
    for piece, after in zip(pieces, [*pieces[1:], ""], strict=False):
        if _is_bar(piece):
            bar = piece
        elif not _goes_on(piece, after):
            kept.append(piece)
    return "\n".join([*kept[-_MOST_PIECES:], bar] if bar else kept[-_MOST_PIECES:])


def rubbed_out(line: str) -> str:
    """A line with "\\b" as a terminal shows it: what was typed and rubbed out, or printed over, is gone."""
    cells: list[str] = []
    at = 0
    for char in line:
        if char == "\b":
            at = max(0, at - 1)
        elif char == "\r":  # `shown` parts the line there
            cells.append(char)
            at = len(cells)
        else:
            cells[at : at + 1] = [char]
            at += 1
    return "".join(cells)


def _is_bar(piece: str) -> bool:
    if _TQDM.search(piece):
        return True
    if len(piece) > _BAR_LENGTH or _BAR.search(piece) is None:
        return False
    prefix = take_off(piece)
    return prefix.stamp is None and not prefix.level


def _goes_on(piece: str, after: str) -> bool:
    """Whether the next piece is the same text with other numbers (a counter), or longer by what was typed."""
    return bool(after) and (after.startswith(piece) or _DIGITS.sub("0", piece) == _DIGITS.sub("0", after))


def behind_bars(line: str) -> str:
    """A line with a break where another line was written right behind a progress bar."""
    return _BEHIND_BAR.sub("\\1\n", line)
