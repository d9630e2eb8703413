"""What an engine takes for a knob that nobody set, by version and device (`defaults.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.model import Value
from infradoc_rules.versions import Running, Version, version_of
from infradoc_rules.yaml_file import load_plain

_V1_SINCE = (0, 8, 0)  # vLLM's second engine is the default from here on
_V0_UNTIL = (0, 11, 0)  # and the only one from here on


@dataclass(frozen=True, slots=True)
class Host:
    """What a default may depend on; None where it is not known. memory: GiB of one device, `split`: tensor parallel."""

    memory: float | None = None
    device: str | None = None
    split: int = 1


def default_of(running: Running, knob: str, host: Host | None = None) -> Value | None:
    """The value in force where nobody set the knob.

    None where the engine works it out itself, or where what it depends on is not known and would decide.
    """
    rows = _table().get(running.system or "", {}).get(knob, ())
    host = host or Host()
    fitting = [row for row in rows if _fits(row, running, host) is not False]
    values = {row["value"] for row in fitting}
    return values.pop() if len(values) == 1 and any(_fits(row, running, host) for row in fitting) else None


def _fits(row: Mapping[str, Any], running: Running, host: Host) -> bool | None:
    """Whether a row holds; None where it may."""
    version = version_of(running.version, running.system)
    checks = [
        _in_versions(row, version, running.system),
        _of_engine(row, running.api, version),
        _in_span(row, host.memory),
        _named(row, host.device),
        _split(row, host.split),
    ]
    return False if False in checks else None if None in checks else True


def _in_versions(row: Mapping[str, Any], version: Version | None, system: str | None) -> bool | None:
    since, until = (version_of(row.get(key), system) for key in ("since", "until"))
    if since is None and until is None:
        return True
    if version is None:
        return None
    return not ((since is not None and version < since) or (until is not None and version >= until))


def _of_engine(row: Mapping[str, Any], api: str | None, version: Version | None) -> bool | None:
    wanted = row.get("api")
    if wanted is None:
        return True
    if version is not None and version >= _V0_UNTIL:
        return bool(wanted == "V1")
    if api in ("V0", "V1"):
        return bool(wanted == api)
    return None if version is None else (wanted == "V1") is (version >= _V1_SINCE)


def _in_span(row: Mapping[str, Any], memory: float | None) -> bool | None:
    low, high = row.get("from"), row.get("to")
    if low is None and high is None:
        return True
    if memory is None:
        return None
    return not ((low is not None and memory < low) or (high is not None and memory >= high))


def _named(row: Mapping[str, Any], device: str | None) -> bool | None:
    wanted, unwanted = row.get("device"), row.get("not")
    if wanted is None and unwanted is None:
        return True
    if device is None:
        return None
    name = device.lower()
    return (wanted is None or wanted in name) and (unwanted is None or unwanted not in name)


def _split(row: Mapping[str, Any], split: int) -> bool:
    wanted = row.get("split")
    return wanted is None or (split < 4) is (wanted == "<4")


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]:
    found: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] = load_plain(
        resources.files("infradoc_rules") / "defaults.yaml"
    )["defaults"]
    return found
