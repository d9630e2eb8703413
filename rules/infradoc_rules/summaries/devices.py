"""What is known of devices: which signs are faults of the hardware, and the power that boards are made for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from infradoc_rules.model import Event

# Xid codes of the hardware -> (what fails, what is done). The same codes as those of severity `device` in the agent's
# table (infradoc/sources/xid.yaml); a test holds the two together.
XID = {
    46: ("device", "reset"),
    48: ("memory", "reset"),
    62: ("device", "reset"),
    64: ("memory", "reset"),
    74: ("link", "link"),
    79: ("lost", "reboot"),
    94: ("memory", "restart"),
    95: ("memory", "reset"),
    109: ("device", "reset"),
    119: ("device", "reset"),
    120: ("device", "reset"),
    121: ("link", "reset"),
    137: ("link", "link"),
    140: ("memory", "reset"),
    143: ("device", "reset"),
    144: ("link", "link"),
    145: ("link", "link"),
    146: ("link", "link"),
    147: ("link", "link"),
    148: ("link", "link"),
    149: ("link", "link"),
    150: ("link", "link"),
    171: ("memory", "reset"),
    172: ("memory", "reset"),
}
_RANK = ("lost", "memory", "link", "bus", "device")
_REMEDY = {"lost": "reboot", "memory": "reset", "link": "link", "bus": "reboot", "device": "reset"}
# Watts that boards are shipped with, by how nvidia-smi names them; the first that matches. Data sheets of NVIDIA.
_BOARDS = (
    (r"GB200|GB300", 1200.0),
    (r"B200|B300", 1000.0),
    (r"H200 NVL", 600.0),
    (r"H200|H800 80GB HBM3|H100 80GB HBM3|H100 SXM", 700.0),
    (r"H100 NVL", 400.0),
    (r"H100 PCIe|H800 PCIe", 350.0),
    (r"A100-SXM|A800-SXM", 400.0),
    (r"A100 80GB PCIe|A800 80GB PCIe|A100 80G\.", 300.0),
    (r"A100-PCIE", 250.0),
    (r"V100-SXM2|V100-SXM3", 300.0),
    (r"V100-PCIE|V100S", 250.0),
    (r"L40S", 350.0),
    (r"L40\b", 300.0),
    (r"\bL4\b", 72.0),
    (r"\bA40\b|RTX A6000|\bA10G\b|RTX 6000 Ada", 300.0),
    (r"\bA30\b", 165.0),
    (r"\bA10\b", 150.0),
    (r"\bT4\b", 70.0),
    (r"RTX 5090", 575.0),
    (r"RTX 4090\b(?! Laptop)", 450.0),
    (r"RTX 3090 Ti", 450.0),
    (r"RTX 3090", 350.0),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sign that the hardware fails."""

    what: str
    remedy: str
    event: Event
    code: int | None = None

    @property
    def rank(self) -> int:
        """The most drastic first."""
        return _RANK.index(self.what)


def failure_of(event: Event) -> Failure | None:
    """What an event says of a failing device; None where it is the program's fault, a note, or something else."""
    if event.name == "xid":
        code = event.fields.get("code")
        known = XID.get(code) if isinstance(code, int) else None
        return None if known is None else Failure(known[0], known[1], event, code if isinstance(code, int) else None)
    if event.name == "gpu_lost":
        return Failure("lost", "reboot", event)
    if event.name == "device_error":
        what = str(event.fields.get("what"))
        return Failure(what if what in _RANK else "device", _REMEDY.get(what, "reset"), event)
    if event.name == "gpu_state":
        return _of_state(event)
    return None


def _of_state(event: Event) -> Failure | None:
    uncorrected = event.fields.get("ecc_uncorrected")
    if event.fields.get("failed"):
        return Failure("device", "reset", event)
    if event.fields.get("remap_failed") is True or event.fields.get("remap_pending") is True:
        return Failure("memory", "reset", event)
    if isinstance(uncorrected, int) and uncorrected > 0:
        return Failure("memory", "reset", event)
    return None


def board_watts(name: str) -> float | None:
    """The power limit that a board of this name is shipped with; None of unknown ones."""
    return next((watts for pattern, watts in _BOARDS if re.search(pattern, name)), None)
