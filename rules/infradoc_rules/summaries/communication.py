"""Which way collectives take, against what the hardware offers: facts comm.*.

comm.slow_path names why a slower path is in use ("none" when nothing speaks for one). A path is only called slow where
the artefacts show the faster one: NVLink in the topology, RDMA cards on the host, or two ranks of one host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.links import Account, isolated, nodes_of, ranks_of, slow_bus, via

_OWN = frozenset({"nccl_transport", "nccl_ready", "nccl_network", "topology_link", "p2p_disabled", "nccl_bandwidth"})
_FABRIC_GPUS = lazy(r"(?i)SXM|HGX|\b[HB][12]00\b|\bH800\b|\bA800\b|\bGB200\b")
_IPOIB = lazy(r"(?:^|[\]\s])ib[\w-]*:")
_PORTS = lazy(r"\[\d+\]([\w.-]+):")
_FASTER = 4  # times; two ports of like speed are a matter of taste
_VIRTUAL = lazy(r"\](?:docker|virbr|br-|veth|tailscale|tun|wg|cni|flannel)")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """comm.slow_path, comm.nodes, comm.ranks, comm.nvlink, comm.rdma; nothing where no line speaks of any of it."""
    if not any(event.name in _OWN for event in events):
        return
    account = Account(events, facts)
    nodes = nodes_of(account)
    nvlink = bool(facts["topo.nvlink"].value) if "topo.nvlink" in facts else False
    rdma = _rdma(account)
    reason, event = _slow_path(account, nodes, nvlink, rdma)
    place = event.source if event is not None else None
    yield Fact("comm.slow_path", reason, "derived", place)
    yield Fact("comm.nodes", nodes, "derived")
    yield Fact("comm.ranks", ranks_of(events), "derived")
    yield Fact("comm.nvlink", nvlink, "derived")
    yield Fact("comm.rdma", rdma, "derived")


def _rdma(account: Account) -> bool:
    """Whether the host has RDMA cards: in its topology, named by a tool, found by NCCL, or as IP over InfiniBand."""
    if account.number("topo.nics") > 0:
        return True
    if any(account.variable(name) is not None for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX")):
        return True  # whoever names the cards has them
    for event in account.named("nccl_network"):
        net, detail = event.fields.get("net"), str(event.fields.get("detail", ""))
        if net in ("IB-hardware", "IB-device") or (net == "IB" and event.fields.get("found") is True):
            return True
        if net == "Socket" and _IPOIB.search(detail):
            return True
    return False


def _slow_path(account: Account, nodes: int, nvlink: bool, rdma: bool) -> tuple[str, Event | None]:
    links = account.named("nccl_transport")
    local = [event for event in links if _is_local(event, account, nodes)]
    for event in local:
        if via(event) == "NET":
            return ("p2p_disabled" if nvlink and _p2p_off(account) else "local_over_net"), event
        if via(event) == "SHM" and _nvlink_between(event, account, nvlink):
            return ("p2p_disabled" if _p2p_off(account) else "local_over_shm"), event
    between = _betweennodes_of(account, links, local, nodes)
    if between is not None:
        return _network(account, between, rdma or _fabric(account))
    told = _told_off(account, links, nodes)
    if told is not None:
        return "ib_disabled", told
    off = next((e for e in account.named("p2p_disabled") if e.fields.get("reason") == "nvlink"), None)
    if off is not None:
        return ("p2p_disabled" if _p2p_off(account) else "no_peer_access"), off
    for event in account.named("p2p_disabled"):
        if nvlink and nodes == 1 and event.fields.get("reason") == "no_peer_access":
            return ("p2p_disabled" if _p2p_off(account) else "no_peer_access"), event
    slow = slow_bus(account) if nvlink and nodes == 1 else None
    return ("slow_bus", slow) if slow is not None else ("none", None)


def _p2p_off(account: Account) -> bool:
    return account.setting("NCCL_P2P_DISABLE", "nccl_p2p")


def _fabric(account: Account) -> bool:
    fact = account.facts.get("gpu.name")
    return fact is not None and _FABRIC_GPUS.search(str(fact.value)) is not None


def _is_local(event: Event, account: Account, nodes: int) -> bool:
    """Whether both ranks run on one host, as far as that is known."""
    if via(event) in ("P2P", "SHM"):
        return True
    hosts = {e.fields.get("rank"): e.fields.get("host") for e in account.named("nccl_ready") if e.fields.get("host")}
    ours, theirs = hosts.get(event.fields.get("from_rank")), hosts.get(event.fields.get("to_rank"))
    if ours is not None and theirs is not None:
        return bool(ours == theirs)
    if nodes > 1:
        return False
    if isolated(account):
        return True
    if event.fields.get("from_device") == event.fields.get("to_device"):
        return False  # the same device number or bus id on both sides: two hosts
    gpus = account.number("topo.gpus")
    return 1 < ranks_of(account.events) <= gpus


def _nvlink_between(event: Event, account: Account, nvlink: bool) -> bool:
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


def _betweennodes_of(account: Account, links: Sequence[Event], local: Sequence[Event], nodes: int) -> Event | None:
    """A line that shows which network carries traffic between hosts; None on a single host."""
    if nodes < 2:
        return None
    crossing = [event for event in links if via(event) == "NET" and event not in local]
    used = [event for event in account.named("nccl_network") if event.fields.get("used") is True]
    return next(iter(crossing or used), None)


def _told_off(account: Account, links: Sequence[Event], nodes: int) -> Event | None:
    """The RDMA card that a tool shows, where a setting switches it off for several hosts; None where a log of the
    transport says more.
    """
    if nodes < 2 or links or not account.setting("NCCL_IB_DISABLE", "nccl_ib"):
        return None
    cards = [event for event in account.named("nccl_network") if event.fields.get("net") == "IB-hardware"]
    shown = account.named("topology_link") if account.number("topo.nics") > 0 else []
    return next(iter(cards or shown), None)


def _network(account: Account, event: Event, rdma: bool) -> tuple[str, Event | None]:
    net = str(event.fields.get("via") or event.fields.get("net") or "")
    if "Socket" in net:
        if rdma:
            off = account.setting("NCCL_IB_DISABLE", "nccl_ib") or account.variable("NCCL_NET") == "Socket"
            return ("ib_disabled" if off else "ib_not_used"), event
        virtual = [e for e in account.named("nccl_network") if _VIRTUAL.search(str(e.fields.get("detail", "")))]
        only = [e for e in virtual if str(e.fields.get("detail")).count("[") == 1]
        slow = only[0] if only else _slow_port(account)
        return ("wrong_interface", slow) if slow is not None else ("none", None)
    if "AWS" in net or "Libfabric" in net:
        lacking = [e for e in account.named("nccl_network") if e.fields.get("detail") == "EFA"]
        return ("ib_not_used", lacking[0]) if lacking else ("none", None)
    if "IB" in net:
        lacking = [
            e for e in account.named("nccl_network") if e.fields.get("net") == "GDR" and e.fields.get("found") is False
        ]
        paths = [
            str(e.fields.get("via")) for e in account.named("nccl_transport") if "NET/IB" in str(e.fields.get("via"))
        ]
        if lacking and not any("GDRDMA" in path for path in paths):
            return "gdr_off", lacking[0]
    return "none", None


def _slow_port(account: Account) -> Event | None:
    """The line in which NCCL takes one port for its sockets although the host has a far faster one."""
    speeds: dict[str, int] = {}
    name = ""
    for event in account.named("nccl_network"):
        detail = str(event.fields.get("detail", ""))
        if event.fields.get("net") == "port":
            name = detail
        elif event.fields.get("net") == "port-speed" and name and detail.isdigit():
            speeds[name] = int(detail)
    for event in account.named("nccl_network"):
        if event.fields.get("net") != "Socket" or event.fields.get("found") is not True:
            continue
        taken = _PORTS.findall(str(event.fields.get("detail", "")))
        used = [speeds[port] for port in taken if port in speeds]
        if used and max(speeds.values()) >= _FASTER * max(used):
            return event
    return None
