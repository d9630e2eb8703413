"""Takes out of a report what should not leave the house: hosts, addresses, users' folders, prompts, keys."""

from __future__ import annotations

import re
from typing import Any

from infradoc.report.model import Report
from infradoc.sources.prompts import without_prompts
from infradoc.sources.secrets import without_secrets

_OWN = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "[::1]"})  # say nothing about whose machine it is
_URL_HOST = re.compile(r"(?<=://)([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?=[:/\s\"')\],]|$)")
_HOST_PORT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?=:\d{1,5}(?:/|$))")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.?\d)")
_HOME = re.compile(r"(?<=/home/)[^/\s:\"']{1,64}|(?<=/Users/)[^/\s:\"']{1,64}")


def redacted(report: Report) -> Report:
    """A report without hosts, addresses, users' folders, prompts and keys; the target's host goes everywhere."""
    host = _host_of(report["target"]["name"])
    cleaned: Report = _each(report, host)
    return cleaned


def _each(value: Any, host: str | None) -> Any:
    if isinstance(value, str):
        return redact_text(value.replace(host, "HOST") if host else value)
    if isinstance(value, list | tuple):
        return [_each(item, host) for item in value]
    return {key: _each(item, host) for key, item in value.items()} if isinstance(value, dict) else value


def redact_text(text: str) -> str:
    """One text. Loopback addresses stay: they tell nobody whose machine it is."""
    shown = without_prompts(without_secrets(text))
    shown = _URL_HOST.sub(lambda found: found[0] if found[0] in _OWN else "HOST", shown)
    shown = _IPV4.sub(_address, shown)
    return _HOME.sub("USER", shown)


def _host_of(name: str) -> str | None:
    """The host in a target's name, if it names one that is not this machine."""
    found = _URL_HOST.search(name) or _HOST_PORT.match(name)
    return None if found is None or found[1] in _OWN else found[1]


def _address(found: re.Match[str]) -> str:
    """Four numbers are an address, not a version, when each could be one byte."""
    parts = found[0].split(".")
    is_address = all(int(part) < 256 and (part == "0" or part[0] != "0") for part in parts)
    return "ADDRESS" if is_address and found[0] not in _OWN else found[0]
