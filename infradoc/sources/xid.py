"""The table of NVIDIA driver errors (`xid.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from infradoc_rules.yaml_file import load_plain


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. severity: device, application or note; action: restart, reset, reboot, link, watch or follow."""

    code: int
    name: str
    severity: str
    action: str


@lru_cache(maxsize=1)
def xid_table() -> Mapping[int, Xid]:
    """All known codes."""
    raw = load_plain(resources.files("infradoc.sources") / "xid.yaml")
    return {int(code): Xid(int(code), row["name"], row["severity"], row["action"]) for code, row in raw.items()}


def xid(code: int) -> Xid:
    """What a code means; one that is not in the table is a note to follow up, never a guess."""
    return xid_table().get(code) or Xid(code, "unknown driver error", "note", "follow")
