"""The explicit list of live sources, bound to one target by its configuration."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from infradoc.config import TargetConfig
from infradoc.sources.admin import AdminSource
from infradoc.sources.amdsmi import AmdSmiSource
from infradoc.sources.base import Source
from infradoc.sources.client import ClientSource
from infradoc.sources.fetch import is_loopback
from infradoc.sources.gpu_apart import ApartSource
from infradoc.sources.gpu_processes import Family
from infradoc.sources.host import HostSource
from infradoc.sources.launch_source import LaunchSource
from infradoc.sources.log import LogSource
from infradoc.sources.log_command import CommandLogSource
from infradoc.sources.metrics_page import MetricsPageSource
from infradoc.sources.nvml import NvmlSource


def bind_sources(config: TargetConfig, named: bool = False) -> list[Source]:
    """Sources of a target, in the order in which a tick reads them. `named`: infradoc.toml has it.

    The host and its GPUs are looked at when the URL is this machine, unless the configuration says otherwise; the
    command line of the server's process then gives the launch facts.
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
        sources.append(AdminSource(config.url, config.auth, wanted=lambda: page.system == "infradoc", asked=named))
    if host is not None:
        sources.append(host)
    sources += _gpus(config, host)
    if config.client:
        sources.append(ClientSource(Path(config.client)))
    if config.log:
        sources.append(LogSource(Path(config.log), config.system or None))
    if config.log_command:
        sources.append(CommandLogSource(config.log_command, config.system or None))
    return sources


def _gpus(config: TargetConfig, host: HostSource | None) -> list[Source]:
    """The GPUs of this machine. They come after the host, which knows the server's processes by then."""
    if config.gpu is False or (config.gpu is None and host is None):
        return []
    indices = config.gpu if isinstance(config.gpu, tuple) else ()
    asked = config.gpu is not None

    def family() -> Family:
        return Family.of(host.last_row.get("procs", [])) if host is not None else Family()

    return [ApartSource(NvmlSource(family, indices, asked)), ApartSource(AmdSmiSource(family, indices))]


def _port(url: str) -> int | None:
    parts = urlsplit(url)
    return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
