"""`nvidia-smi topo -m`: how GPUs and network cards of a host are joined."""

from __future__ import annotations

from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact

_DEVICE = lazy(r"^(?:GPU|NIC)\d+$|^(?:mlx\d|bnxt_re|irdma|efa|hfi1)_?\w*$")
_LINK = lazy(r"^(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX|PSB|XGMI)$")
_LEGEND = lazy(r"^\s*(?:Legend:|NIC Legend:|NIC\d+: \S+|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= )")


class TopologyKind:
    """The matrix, with its legend when it is there."""

    name = "topology"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Header, rows and legend; blank lines between them belong to it."""
        found = runs(lines, lambda line: _row(line) or _header(line) or _LEGEND.match(line), gap=2)
        return [span for span in found if any(_row(line) for line in lines[span[0] : span[1]])]

    def read(self, segment: Segment) -> Artefact:
        """A link event for each pair, and facts: GPUs, NVLink between them, network cards for RDMA."""
        out = Artefact()
        columns: list[str] = []
        for index, line in enumerate(segment.lines):
            columns = _header(line) or columns
            row = _row(line)
            if row:
                out.events += _links(row, columns, segment.place(index), line)
            elif not _header(line) and line.strip() and not _LEGEND.match(line):
                out.unparsed += 1
        out.facts = _facts(out.events, columns, segment)
        return out


def _header(line: str) -> list[str]:
    """The devices that the columns stand for; empty when the line is no header."""
    words = line.split()
    devices = [word for word in words if _DEVICE.match(word)]
    return devices if devices and words[: len(devices)] == devices and not _row(line) else []


def _row(line: str) -> list[str]:
    """The device of the row and its links; empty when the line is no row."""
    words = line.split()
    if len(words) < 2 or not _DEVICE.match(words[0]) or not _LINK.match(words[1]):
        return []
    links = [word for word in words[1:] if _LINK.match(word)]
    return [words[0], *links]


def _links(row: list[str], columns: list[str], place: str, line: str) -> list[Event]:
    pairs = zip(columns, row[1:], strict=False)
    return [
        Event("topology_link", 0, {"a": row[0], "b": other, "link": link}, None, None, place, line[:400])
        for other, link in pairs
        if link != "X"
    ]


def _facts(events: Sequence[Event], columns: Sequence[str], segment: Segment) -> list[Fact]:
    between = [e for e in events if str(e.fields["a"]).startswith("GPU") and str(e.fields["b"]).startswith("GPU")]
    links = {str(event.fields["link"]) for event in between}
    gpus = {str(event.fields["a"]) for event in events} | set(columns)
    count = sum(name.startswith("GPU") for name in gpus)
    nics = len(gpus) - count
    place = segment.place(0)
    facts = [Fact("topo.gpus", count, "file", place), Fact("topo.nics", nics, "file", place)]
    if between:
        facts.append(Fact("topo.nvlink", any(link.startswith(("NV", "XGMI")) for link in links), "file", place))
        facts.append(Fact("topo.links", " ".join(sorted(links)), "file", place))
    return facts
