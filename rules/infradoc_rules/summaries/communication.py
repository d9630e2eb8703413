"""Which way collectives take, against what the hardware offers: facts comm.*.

comm.slow_path names why a slower path is in use ("none" when nothing speaks for one). A path is only called slow where
the artefacts show the faster one: NVLink in the topology, RDMA cards on the host, or two ranks of one host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infradoc_rules.model import Event, Fact

_OWN = frozenset({"nccl_transport", "nccl_ready", "nccl_network", "topology_link", "p2p_disabled", "nccl_bandwidth"})
_FABRIC_GPUS = re.compile(r"(?i)SXM|HGX|\b[HB][12]00\b|\bH800\b|\bA800\b|\bGB200\b")
_IPOIB = re.compile(r"(?:^|[\]\s])ib[\w-]*:")
_VIRTUAL = re.compile(r"\](?:docker|virbr|br-|veth|tailscale|tun|wg|cni|flannel)")
_OFF = frozenset({"1", "1.", "true", "yes"})
_SLOW_NVLINK = 12.0  # GB/s; one NVLink 2 pair gives over 20, PCIe through host memory 5 to 10


@dataclass(frozen=True, slots=True)
class _Account:
    events: Sequence[Event]
    facts: Mapping[str, Fact]

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def setting(self, name: str, knob: str) -> bool:
        """Whether an NCCL variable switches something off, in the environment or as a launch fact."""
        for event in self.named("nccl_setting"):
            if event.fields.get("name") == name and str(event.fields.get("value")).lower() in _OFF:
                return True
        fact = self.facts.get(knob)
        return fact is not None and fact.value is False

    def number(self, name: str) -> float:
        fact = self.facts.get(name)
        return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else 0.0


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """comm.slow_path, comm.nodes, comm.ranks, comm.nvlink, comm.rdma; nothing where no line speaks of any of it."""
    if not any(event.name in _OWN for event in events):
        return
    account = _Account(events, facts)
    nodes = _nodes(account)
    nvlink = bool(facts["topo.nvlink"].value) if "topo.nvlink" in facts else False
    rdma = _rdma(account)
    reason, event = _slow_path(account, nodes, nvlink, rdma)
    place = event.source if event is not None else None
    yield Fact("comm.slow_path", reason, "derived", place)
    yield Fact("comm.nodes", nodes, "derived")
    yield Fact("comm.ranks", ranks_of(events), "derived")
    yield Fact("comm.nvlink", nvlink, "derived")
    yield Fact("comm.rdma", rdma, "derived")


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


def _nodes(account: _Account) -> int:
    """Hosts that take part: as declared, or as many as the lines name."""
    hosts = {
        str(event.fields["host"])
        for event in account.events
        if event.name.startswith("nccl_") and event.fields.get("host")
    }
    declared = int(account.number("train.nodes"))
    return max(declared, len(hosts), 1)


def _rdma(account: _Account) -> bool:
    """Whether the host has RDMA cards: in its topology, named by a tool, found by NCCL, or as IP over InfiniBand."""
    if account.number("topo.nics") > 0:
        return True
    if any(str(e.fields.get("name")) in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX") for e in account.named("nccl_setting")):
        return True  # whoever names the cards has them
    for event in account.named("nccl_network"):
        net, detail = event.fields.get("net"), str(event.fields.get("detail", ""))
        if net in ("IB-hardware", "IB-device") or (net == "IB" and event.fields.get("found") is True):
            return True
        if net == "Socket" and _IPOIB.search(detail):
            return True
    return False


def _slow_path(account: _Account, nodes: int, nvlink: bool, rdma: bool) -> tuple[str, Event | None]:
    links = account.named("nccl_transport")
    local = [event for event in links if _is_local(event, account, nodes)]
    for event in local:
        if _via(event) == "NET":
            return ("p2p_disabled" if nvlink and _p2p_off(account) else "local_over_net"), event
        if _via(event) == "SHM" and _nvlink_between(event, account, nvlink):
            return ("p2p_disabled" if _p2p_off(account) else "local_over_shm"), event
    between = _between_nodes(account, links, local, nodes)
    if between is not None:
        return _network(account, between, rdma or _fabric(account))
    for event in account.named("p2p_disabled"):
        if nvlink and nodes == 1 and event.fields.get("reason") == "no_peer_access":
            return ("p2p_disabled" if _p2p_off(account) else "no_peer_access"), event
    for event in account.named("nccl_bandwidth"):
        rate = event.fields.get("bus_rate")
        if nvlink and nodes == 1 and isinstance(rate, float) and 0 < rate < _SLOW_NVLINK and _is_average(event):
            return "slow_bus", event
    return "none", None


def _p2p_off(account: _Account) -> bool:
    return account.setting("NCCL_P2P_DISABLE", "nccl_p2p")


def _fabric(account: _Account) -> bool:
    fact = account.facts.get("gpu.name")
    return fact is not None and _FABRIC_GPUS.search(str(fact.value)) is not None


def _is_average(event: Event) -> bool:
    return "Avg bus" in (event.text or "")


def _via(event: Event) -> str:
    path = str(event.fields.get("path"))
    return "SHM" if path == "direct shared memory" else path


def _is_local(event: Event, account: _Account, nodes: int) -> bool:
    """Whether both ranks run on one host, as far as that is known."""
    if _via(event) in ("P2P", "SHM"):
        return True
    hosts = {e.fields.get("rank"): e.fields.get("host") for e in account.named("nccl_ready") if e.fields.get("host")}
    ours, theirs = hosts.get(event.fields.get("from_rank")), hosts.get(event.fields.get("to_rank"))
    if ours is not None and theirs is not None:
        return bool(ours == theirs)
    if nodes > 1:
        return False
    if _isolated(account):
        return True
    if event.fields.get("from_device") == event.fields.get("to_device"):
        return False  # the same device number or bus id on both sides: two hosts
    gpus = account.number("topo.gpus")
    return 1 < ranks_of(account.events) <= gpus


def _isolated(account: _Account) -> bool:
    """Whether several containers of one host were started with one GPU each."""
    shown = [event for event in account.named("nccl_setting") if "DEVICES" in str(event.fields.get("name"))]
    single = {str(event.fields.get("value")) for event in shown if str(event.fields.get("value")).isdigit()}
    return len(single) > 1


def _nvlink_between(event: Event, account: _Account, nvlink: bool) -> bool:
    """NVLink joins this pair, or all pairs when the devices of the line cannot be told."""
    if not nvlink:
        return False
    pair = {f"GPU{event.fields.get('from_device')}", f"GPU{event.fields.get('to_device')}"}
    links = account.named("topology_link")
    own = [str(e.fields.get("link")) for e in links if {str(e.fields.get("a")), str(e.fields.get("b"))} == pair]
    if own:
        return own[0].startswith(("NV", "XGMI"))
    gpus = [e for e in links if str(e.fields.get("a")).startswith("GPU") and str(e.fields.get("b")).startswith("GPU")]
    return all(str(e.fields.get("link")).startswith(("NV", "XGMI")) for e in gpus)


def _between_nodes(account: _Account, links: Sequence[Event], local: Sequence[Event], nodes: int) -> Event | None:
    """A line that shows which network carries traffic between hosts; None on a single host."""
    if nodes < 2:
        return None
    crossing = [event for event in links if _via(event) == "NET" and event not in local]
    used = [event for event in account.named("nccl_network") if event.fields.get("used") is True]
    return next(iter(crossing or used), None)


def _network(account: _Account, event: Event, rdma: bool) -> tuple[str, Event | None]:
    net = str(event.fields.get("via") or event.fields.get("net") or "")
    if "Socket" in net:
        if rdma:
            return ("ib_disabled" if account.setting("NCCL_IB_DISABLE", "nccl_ib") else "ib_not_used"), event
        virtual = [e for e in account.named("nccl_network") if _VIRTUAL.search(str(e.fields.get("detail", "")))]
        only = [e for e in virtual if str(e.fields.get("detail")).count("[") == 1]
        return ("wrong_interface", only[0]) if only else ("none", None)
    if "IB" in net:
        off = [
            e for e in account.named("nccl_network") if e.fields.get("net") == "GDR" and e.fields.get("found") is False
        ]
        paths = [
            str(e.fields.get("via")) for e in account.named("nccl_transport") if "NET/IB" in str(e.fields.get("via"))
        ]
        if off and not any("GDRDMA" in path for path in paths):
            return "gdr_off", off[0]
    return "none", None
