"""Takes out of a report what should not leave the house: hosts, addresses, users' folders, prompts, keys."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from infradoc.report.hosts import OWN, is_telling, short_names, without_hosts
from infradoc.report.model import Report
from infradoc.sources.prompts import without_prompts
from infradoc.sources.secrets import without_secrets

_URL_HOST = re.compile(r"(?<=://)([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?=[:/\s\"')\],]|$)")
_HOST_PORT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?=:\d{1,5}(?:/|$))")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.?\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,40}[0-9A-Fa-f]{3})(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_MAIL = re.compile(
    r"(?<![\w.+%-])[A-Za-z0-9_][\w.+%-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![\w-])"
)
_HOME = re.compile(r"(?<=/home/)[^/\s:\"']{1,64}|(?<=/Users/)[^/\s:\"']{1,64}")
# A name there may have spaces, where a separator ends it; in JSON each backslash stands twice.
_WINDOWS_HOME = re.compile(
    r"((?<![A-Za-z])[A-Za-z]:[\\/]{1,4}(?:Users|Documents and Settings)[\\/]{1,4})"
    r"(?:[^\\/:*?\"<>|\r\n]{1,64}(?=[\\/])|[^\\/\s:*?\"'<>|]{1,64})",
    re.IGNORECASE,
)


def redacted(report: Report) -> Report:
    """A report without hosts, addresses, users' folders, prompts and keys.

    What is a machine's name in one place is one everywhere: the target's host, and the first label of each host.
    """
    host = _host_of(report["target"]["name"])
    known = {name for text in _texts(report) for name in short_names(text)}
    known |= {host} if host and ("." in host or ":" in host or is_telling(host)) else set()
    known |= {host.split(".")[0]} if host and "." in host and is_telling(host.split(".")[0]) else set()
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    if host and host not in known:  # a word such as vllm or prod means more than a machine: only with a port
        names = f"{names}|{re.escape(host)}(?=:\\d)".lstrip("|")
    cleaned: Report = _each(report, re.compile(rf"(?<![\w.-])(?:{names})(?![\w-])", re.IGNORECASE) if names else None)
    return cleaned


def _each(value: Any, known: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        shown = redact_text(value)
        return known.sub("HOST", shown) if known is not None else shown
    if isinstance(value, list | tuple):
        return [_each(item, known) for item in value]
    return {key: _each(item, known) for key, item in value.items()} if isinstance(value, dict) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def redact_text(text: str) -> str:
    """One text. Loopback addresses stay: they tell nobody whose machine it is."""
    shown = without_prompts(without_secrets(text))
    shown = _URL_HOST.sub(lambda found: found[0] if found[0] in OWN else "HOST", shown)
    shown = _MAIL.sub("EMAIL", shown)
    shown = without_hosts(shown)
    shown = _IPV6.sub(_address6, _IPV4.sub(_address, shown))
    return _WINDOWS_HOME.sub(r"\1USER", _HOME.sub("USER", shown))


def _host_of(name: str) -> str | None:
    """The host in a target's name, if it names one that is not this machine."""
    found = _URL_HOST.search(name) or _HOST_PORT.match(name)
    return None if found is None or found[1] in OWN else found[1]


def _address(found: re.Match[str]) -> str:
    """Four numbers are an address, not a version, when each could be one byte."""
    parts = found[0].split(".")
    is_address = all(int(part) < 256 and (part == "0" or part[0] != "0") for part in parts)
    return "ADDRESS" if is_address and found[0] not in OWN else found[0]


def _address6(found: re.Match[str]) -> str:
    """Hexadecimal digits between colons are also times, places on a bus and slices; those are no address."""
    try:
        ipaddress.IPv6Address(found[0])
    except ValueError:
        return found[0]
    return "ADDRESS"
