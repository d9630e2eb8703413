"""A card that runs on a few of its PCIe lanes: fact comm.narrow_slot, only where a tool shows the link.

It is a cause only where GPUs that NVLink does not join work together: what they exchange goes through that slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infradoc_rules.model import Event, Fact
from infradoc_rules.summaries.load import fact

_NARROW = 0.25  # of the lanes: boards give x8 to each of two cards by design, which costs collectives little
_TOGETHER = ("tensor_parallel_size", "pipeline_parallel_size", "comm.ranks", "train.gpus_per_node", "train.devices")


def summary(events: Sequence[Event], facts: Mapping[str, Fact], system: str | None) -> Iterable[Fact]:
    """Whether GPUs of one job exchange data through a slot of a quarter of its lanes or less."""
    now, most = (fact(facts, name) for name in ("pcie.width", "pcie.width_max"))
    if now is None or most is None:
        return
    joined = any(name in facts and facts[name].value is True for name in ("topo.nvlink", "comm.nvlink"))
    together = any((fact(facts, name) or 0) > 1 for name in _TOGETHER)
    yield Fact(
        "comm.narrow_slot", together and not joined and now <= _NARROW * most, "derived", facts["pcie.width"].source
    )
