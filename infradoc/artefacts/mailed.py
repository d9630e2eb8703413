"""A mail as it is sent: quoted-printable text (RFC 2045), and flowed text (RFC 3676).

In the first "=" stands before two hexadecimal digits or a break that is none; in the second a blank at the end of a
line says that the line goes on, and a blank is put in front of lines that begin with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from infradoc_rules.lazy_pattern import lazy

_WIDEST = 78  # RFC 2045 allows 76 characters; quoting marks may have been put in front
_LOOK = 2_000  # lines that tell
_LEAST = 2  # signs of it
_FULL = 66  # characters of a flowed line with the word that did not fit
_MOST_GOING = 0.9  # of the lines; a screen is copied with blanks behind each
_NEARLY = 0.9  # of the lines that go on
_CODED = lazy(r"=[0-9A-F]{2}|=$")
_SURE = lazy(r"=3D|=20|=09|=C[23]=[89AB]|=E2=80")  # an equals sign, a blank, a tab, what is no ASCII
_HEADER = lazy(r"^(?:[A-Z][A-Za-z-]{1,40}: |\s+(?:charset|boundary|format|delsp|filename)=|--[\w=.+-]{8,80}$)")
_TOLD = lazy(r"(?i:Content-Transfer-Encoding: *quoted-printable)\s*$")
_HEADERS = 100  # lines of a mail that may be headers
_CONTROLS = frozenset(range(32)) - {9, 10, 13, 27}


def decoded(lines: Sequence[str]) -> list[str] | None:
    """The lines of a text in quoted-printable; None where it is none."""
    looked = lines[:_LOOK]
    if not any("=" in line for line in looked) or any(len(line.rstrip()) > _WIDEST for line in lines):
        return None
    coded = [line.rstrip() for line in looked if "=" in line and not _HEADER.match(line)]
    signs = sum(len(_SURE.findall(line)) + (line.endswith("=") and len(line) > _WIDEST - 10) for line in coded)
    told = any(_TOLD.match(line) for line in looked[:_HEADERS])
    if signs < (1 if told else _LEAST) or any(_CODED.sub("", line).count("=") for line in coded):
        return None
    import quopri

    data = quopri.decodestring("\n".join(line.rstrip("\r") for line in lines).encode("utf-8", "replace"))
    if not _CONTROLS.isdisjoint(data):
        return None
    return data.decode("utf-8", "replace").split("\n")


def flowed(lines: Sequence[str]) -> list[str] | None:
    """The lines of a flowed text, each whole again; None where it is none."""
    looked = lines[:_LOOK]
    going = [(line, after) for line, after in pairwise(looked) if line.endswith(" ")]
    if not going or any(len(line) > _WIDEST and " " in line.strip() for line in looked):
        return None
    if len(going) > _MOST_GOING * len(looked) or (len(going) < _LEAST and not _stuffed(looked)):
        return None
    filled = sum(len(line) + len(after.partition(" ")[0]) >= _FULL for line, after in going)
    if filled < _NEARLY * len(going):
        return None
    out: list[str] = []
    goes_on = False
    for line in lines:
        text = line[1:] if line[:1] == " " else line
        if goes_on:
            out[-1] += text
        else:
            out.append(text)
        goes_on = line.endswith(" ") and line != "-- "
    return [line.rstrip() for line in out]


def _stuffed(lines: Sequence[str]) -> bool:
    """Whether each line that is indented has a blank more than what is written in steps of two has."""
    steps = [len(line) - len(line.lstrip(" ")) for line in lines if line[:1] == " " and line.strip()]
    return bool(steps) and all(step % 2 for step in steps)
