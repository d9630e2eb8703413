"""What NCCL's lines and the topology say of hosts, ranks and links, for the verdicts on collectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infradoc_rules.model import Event, Fact

_OFF = frozenset({"1", "1.", "true", "yes"})
_LANE = 25.0  # GB/s of one NVLink in one direction, from the second generation on
_LEAST_OF_NVLINK = 0.25  # of the links' sum; a ring of few channels reaches half
_MOST_GPUS = 8  # of a host that is not a rack; more shards of one model sit on several
_SLOW_NVLINK = 12.0  # GB/s; one NVLink 2 pair gives over 20, PCIe through host memory 5 to 10


@dataclass(frozen=True, slots=True)
class Account:
    """Events and facts of one post-mortem, and how they are asked."""

    events: Sequence[Event]
    facts: Mapping[str, Fact]

    def named(self, name: str) -> list[Event]:
        """The events of a name."""
        return [event for event in self.events if event.name == name]

    def setting(self, name: str, knob: str) -> bool:
        """Whether an NCCL variable switches something off, in the environment or as a launch fact."""
        for event in self.named("nccl_setting"):
            asked = "lease set" in (event.text or "")  # a message that asks for it
            if event.fields.get("name") == name and str(event.fields.get("value")).lower() in _OFF and not asked:
                return True
        fact = self.facts.get(knob)
        return fact is not None and fact.value is False

    def variable(self, name: str) -> str | None:
        """An environment variable, from a log or from the launch."""
        for event in self.named("nccl_setting"):
            if event.fields.get("name") == name:
                return str(event.fields.get("value")).rstrip(".")
        fact = self.facts.get(f"env.{name}")
        return None if fact is None else str(fact.value)

    def number(self, name: str) -> float:
        """A fact as a number; 0 where it is unknown or none."""
        fact = self.facts.get(name)
        return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else 0.0


def ranks_of(events: Sequence[Event]) -> int:
    """Ranks of the largest communicator seen; 0 when none was."""
    counts = [event.fields.get("ranks") for event in events if event.name == "nccl_ready"]
    seen = [
        event.fields.get(side)
        for event in events
        if event.name == "nccl_transport"
        for side in ("from_rank", "to_rank")
    ]
    return max(
        [int(n) for n in counts if isinstance(n, int)] + [int(n) + 1 for n in seen if isinstance(n, int)], default=0
    )


def nodes_of(account: Account) -> int:
    """Hosts that take part: as declared, or as many as the lines name."""
    hosts = {
        str(event.fields["host"])
        for event in account.events
        if event.name.startswith("nccl_") and event.fields.get("host")
    }
    declared = int(account.number("train.nodes")) or math.ceil(account.number("tensor_parallel_size") / _MOST_GPUS)
    return max(declared, len(hosts), _nodes_by_rank(account), 1)


def _nodes_by_rank(account: Account) -> int:
    """2 where ranks meet over a network that cannot sit in one host: more ranks than it has GPUs, or a rank above its
    device's number. On one host ranks take its devices in order, unless each sits in a container of its own.
    """
    links = account.named("nccl_transport")
    crossing = [event for event in links if via(event) == "NET"]
    if links and not crossing:
        return 1
    ranks, gpus = ranks_of(account.events), account.number("topo.gpus") or account.number("train.gpus_per_node")
    if gpus and ranks:
        return math.ceil(ranks / gpus)
    return 2 if not isolated(account) and any(_above_its_device(event) for event in crossing) else 1


def _above_its_device(event: Event) -> bool:
    for end in ("from", "to"):
        rank, device = event.fields.get(f"{end}_rank"), str(event.fields.get(f"{end}_device", ""))
        if isinstance(rank, int) and len(device) <= 2 and device.isdecimal() and rank > int(device):
            return True
    return False


def isolated(account: Account) -> bool:
    """Whether several containers of one host were started with one GPU each."""
    shown = [event for event in account.named("nccl_setting") if "DEVICES" in str(event.fields.get("name"))]
    single = {str(event.fields.get("value")) for event in shown if str(event.fields.get("value")).isdigit()}
    return len(single) > 1


def slow_bus(account: Account) -> Event | None:
    """A measured bandwidth far below what NVLink gives: on average, or at its best where every pair is joined."""
    measured = [event for event in account.named("nccl_bandwidth") if isinstance(event.fields.get("bus_rate"), float)]
    for event in measured:
        if _is_average(event) and 0 < float(event.fields["bus_rate"]) < _SLOW_NVLINK:
            return event
    rows = [event for event in measured if not _is_average(event)]
    best = max(rows, key=lambda event: float(event.fields["bus_rate"]), default=None)
    lanes = _lanes(account)
    if best is None or lanes is None or float(best.fields["bus_rate"]) >= _LEAST_OF_NVLINK * lanes * _LANE:
        return None
    return best if float(best.fields["bus_rate"]) > 0 else None


def _lanes(account: Account) -> int | None:
    """NVLinks of the pair that has fewest; None where a pair has none, or where only a part of the host is measured."""
    links = [e for e in account.named("topology_link") if str(e.fields.get("a")).startswith("GPU")]
    pairs = [str(e.fields.get("link")) for e in links if str(e.fields.get("b")).startswith("GPU")]
    counts = [int(link[2:]) for link in pairs if link.startswith("NV") and link[2:].isdigit()]
    return min(counts) if counts and len(counts) == len(pairs) else None


def _is_average(event: Event) -> bool:
    return "Avg bus" in (event.text or "")


def via(event: Event) -> str:
    """P2P, SHM, NET or C2C, as of all versions of NCCL."""
    path = str(event.fields.get("path"))
    return "SHM" if path == "direct shared memory" else path
