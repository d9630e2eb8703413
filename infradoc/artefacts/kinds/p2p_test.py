"""`p2pBandwidthLatencyTest` of the CUDA samples: copies between devices with peer access on and off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Value

_HEAD = lazy(r"^\s*(?:\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|P2P Connectivity Matrix)")
_MATRIX = lazy(r"^\s*(?P<way>Uni|Bi)directional P2P=(?P<state>Enabled|Disabled) Bandwidth\b.*\(GB/s\)")
_ROW = lazy(r"^\s*(?P<device>\d+)(?P<cells>(?:\s+\d+(?:\.\d+)?)+)\s*$")
_OWN = lazy(
    r"^\s*(?:$|Device[: ]|Device=|\*{3}NOTE|So you can see|NOTE:|P2P[ =]|D\\D|GPU\s+\d|CPU\s+\d"
    r"|Unidirectional|Bidirectional)"
)
_MOST_DEVICES = 32


class PeerTestKind:
    """The whole output, or a part from the connectivity matrix or a bandwidth matrix on."""

    name = "p2p_test"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """From a title on, as long as lines belong to it."""
        found: list[Span] = []
        index = 0
        while index < len(lines):
            if not (_HEAD.match(lines[index]) or _MATRIX.match(lines[index])):
                index += 1
                continue
            end = index + 1
            while end < len(lines) and (_ROW.match(lines[end]) or _OWN.match(lines[end]) or _HEAD.match(lines[end])):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            if any(_MATRIX.match(line) for line in lines[index:end]):
                found.append((index, end))
            index = end
        return found

    def read(self, segment: Segment) -> Artefact:
        """One `p2p_bandwidth` of the copies in one direction, in both where only these are shown: medians in GB/s."""
        out = Artefact()
        one_way = any((title := _MATRIX.match(line)) and title["way"] == "Uni" for line in segment.lines)
        rates: dict[str, list[float]] = {}
        place = segment.place(0)
        state = ""
        for index, line in enumerate(segment.lines):
            title, row = _MATRIX.match(line), _ROW.match(line)
            if title is not None:
                state = title["state"] if (title["way"] == "Uni") is one_way else ""
                place = segment.place(index) if state else place
                rates.setdefault(state, [])
            elif row is not None and state:
                rates[state] += _others(int(row["device"]), row["cells"].split())
            elif line.strip() and not re.match(r"\s*D\\D", line):
                state = ""
        without, with_peer = rates.get("Disabled", []), rates.get("Enabled")
        if without and with_peer is not None:
            fields: dict[str, Value] = {"without_peer": median(without), "unfinished": not with_peer}
            if with_peer:
                fields["with_peer"] = median(with_peer)
            out.events.append(Event("p2p_bandwidth", 0, fields, source=place, text="P2P=Enabled Bandwidth Matrix"))
        return out


def _others(device: int, cells: Sequence[str]) -> list[float]:
    """A row without its diagonal: what a device copies to itself says nothing on a path."""
    return [float(cell) for column, cell in enumerate(cells[:_MOST_DEVICES]) if column != device]
