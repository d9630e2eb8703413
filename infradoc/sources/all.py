"""The explicit list of live sources, bound to one target by its configuration."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from infradoc.config import TargetConfig
from infradoc.sources.admin import AdminSource
from infradoc.sources.base import Source
from infradoc.sources.client import ClientSource
from infradoc.sources.fetch import is_loopback
from infradoc.sources.host import HostSource
from infradoc.sources.launch_source import LaunchSource
from infradoc.sources.log import LogSource
from infradoc.sources.metrics_page import MetricsPageSource


def bind_sources(config: TargetConfig) -> list[Source]:
    """Sources of a target, in the order in which a tick reads them.

    The host is looked at when the URL is this machine, unless the configuration says otherwise; the command line of the
    server's process then gives the launch facts.
    """
    sources: list[Source] = []
    metrics: MetricsPageSource | None = None
    if config.url:
        metrics = MetricsPageSource(config.url, config.auth, config.system or None)
    local = config.host if config.host is not None else is_loopback(config.url)
    host = HostSource(_port(config.url)) if local else None
    if config.launch:
        sources.append(LaunchSource(Path(config.launch)))
    elif host is not None and host.processes is not None:
        sources.append(LaunchSource(process=host.processes.command))
    if metrics is not None:
        sources.append(metrics)
        page = metrics
        sources.append(AdminSource(config.url, config.auth, wanted=lambda: page.system == "infradoc"))
    if host is not None:
        sources.append(host)
    if config.client:
        sources.append(ClientSource(Path(config.client)))
    if config.log:
        sources.append(LogSource(Path(config.log), config.system or None))
    return sources


def _port(url: str) -> int | None:
    parts = urlsplit(url)
    return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
