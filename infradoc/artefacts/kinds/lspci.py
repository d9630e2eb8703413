"""`lspci -vv` of the devices that compute: how many lanes each has, and how many it could have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_DEVICE = lazy(r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f] (?P<what>[A-Z0-9][^:]{3,60}): (?P<name>.+)$")
_COMPUTES = lazy(r"VGA compatible controller|3D controller|Processing accelerators|Display controller")
_MAKER = lazy(r"NVIDIA|AMD/ATI|Advanced Micro Devices|Habana|Intel")
_WIDTH = lazy(r"^\s+Lnk(?P<which>Cap|Sta): ?.*?\bWidth x(?P<lanes>\d{1,2})\b")
_SIGNS = ("LnkSta:", "LnkCap:")


class LspciKind:
    """Blocks of devices, one below the other; each is an address with what it is, and indented lines."""

    name = "lspci"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """The blocks of GPUs in which the state of the link is shown, with those of other devices between them."""
        if not any(sign in line for line in lines for sign in _SIGNS):
            return []
        found: list[Span] = []
        for start, end in _blocks(lines):
            if found and all(_other(line) for line in lines[found[-1][1] : start]):
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def read(self, segment: Segment) -> Artefact:
        """pcie.width, pcie.width_max, pcie.narrow of the device with the fewest of its lanes."""
        return Artefact([], list(_facts(segment)), [], None, 0)


def _blocks(lines: Sequence[str]) -> Iterator[Span]:
    for start, line in enumerate(lines):
        device = _DEVICE.match(line)
        if device and _COMPUTES.match(device["what"]) and _MAKER.search(device["name"]):
            end = start + 1
            while end < len(lines) and lines[end].startswith((" ", "\t")):
                end += 1
            if any("LnkSta:" in inner for inner in lines[start:end]):
                yield start, end


def _other(line: str) -> bool:
    """Whether a line is of another device in the same output."""
    return not line.strip() or line.startswith((" ", "\t")) or _DEVICE.match(line) is not None


def _facts(segment: Segment) -> Iterator[Fact]:
    pairs: list[tuple[int, int, str]] = []
    for start, end in _blocks(segment.lines):
        rows = [found for line in segment.lines[start:end] if (found := _WIDTH.match(line))]
        lanes = {found["which"]: int(found["lanes"]) for found in rows}
        if lanes.get("Sta") and lanes.get("Cap"):  # Width x0 is shown of a device that is gone
            pairs.append((lanes["Sta"], lanes["Cap"], segment.place(start)))
    if pairs:
        now, most, place = min(pairs, key=lambda pair: pair[0] / pair[1])
        yield Fact("pcie.width", now, "file", place)
        yield Fact("pcie.width_max", most, "file", place)
        yield Fact("pcie.narrow", now < most, "file", place)
