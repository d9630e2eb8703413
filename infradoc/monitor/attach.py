"""From what a user typed as TARGET to a target with its sources bound, or to a recording."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from infradoc.config import Config, TargetConfig
from infradoc.errors import InfradocError
from infradoc.paths import why, written_path
from infradoc.signals.store import Store
from infradoc.sources.archive import is_archive
from infradoc.sources.base import Source
from infradoc_rules.near import near

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/\S*)?")


class TargetError(InfradocError):
    """The TARGET is none; says what it could be."""


@dataclass(slots=True)
class Target:
    """One live target: its name, how it was configured, where its signals come from, and what is known of it."""

    name: str
    config: TargetConfig
    sources: list[Source]
    store: Store = field(default_factory=Store)

    @property
    def url(self) -> str:
        """The server's URL; empty for a target that is only a log."""
        return self.config.url

    def source(self, name: str) -> Source | None:
        """The bound source of that name."""
        return next((source for source in self.sources if source.name == name), None)

    def close(self) -> None:
        """Close all sources."""
        for source in self.sources:
            source.close()


def is_recording(spec: str, config: Config) -> bool:
    """Whether TARGET names a folder or file rather than a server; names of the configuration come first.

    Raises TargetError for a path that cannot be looked at.
    """
    if not spec.strip() or spec in config.targets or "://" in spec:  # an empty text would be this folder
        return False
    try:
        path = written_path(spec)
        return path.exists() or is_archive(path) or spec.startswith((".", "/", "~"))
    except (OSError, ValueError) as error:  # the home of nobody, a folder that may not be searched
        raise TargetError(f"{spec[:200]!r} is no usable path: {why(error)}.", "Check it.") from error


def target_config(spec: str, config: Config) -> TargetConfig:
    """The configuration of a named target or of a URL. Raises TargetError when the text is neither."""
    if spec in config.targets:
        return config.targets[spec]
    url = spec if "://" in spec else f"http://{spec}" if _HOST_PORT.fullmatch(spec) else ""
    if not url:
        raise TargetError(f"{spec!r} is no target.", _hint(spec, config))
    check_url(url)
    known = next((entry for entry in config.targets.values() if same_server(entry.url, url)), None)
    return known or TargetConfig(url=url)


def attach(spec: str, config: Config, period: float = 1.0) -> Target:
    """Bind the sources of one live target. Raises TargetError, ConfigError or SecretError; makes no request yet."""
    from infradoc.sources.all import bind_sources

    found = target_config(spec, config)
    if found.url:
        check_url(found.url)
    _check_system(spec, found)
    named = any(entry is found for entry in config.targets.values())
    return Target(spec, found, bind_sources(found, named), Store(found.system or None, period))


def check_url(url: str) -> None:
    """Raise TargetError unless the URL is a usable address without a password in it."""
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or 0 < parts.port < 65536
    except ValueError as error:
        raise TargetError(f"{url} is no usable URL: {error}.", "Write http://HOST:PORT.") from error
    if parts.scheme not in ("http", "https"):
        raise TargetError(f"{url} is no http:// or https:// address.", "Give the server's URL.")
    if not parts.hostname or not port_ok:
        raise TargetError(f"{url} names no usable host and port.", "Write http://HOST:PORT.")
    if parts.username or parts.password:
        hint = "Put the user into infradoc.toml: [targets.NAME.auth] basic_user, basic_password_env."
        raise TargetError("The URL holds a user name or password.", hint)


def _check_system(spec: str, config: TargetConfig) -> None:
    from infradoc_rules.maps import SYSTEMS

    if config.system and config.system not in SYSTEMS:
        meant = near(config.system, SYSTEMS)
        hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(SYSTEMS)}."
        message = f"The configuration of {spec} has system = {config.system!r}, which is no known engine."
        raise TargetError(message, hint)


def same_server(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    if not one:
        return False
    try:
        first, second = urlsplit(one), urlsplit(other)
        return (first.scheme, first.hostname, first.port) == (second.scheme, second.hostname, second.port)
    except ValueError:
        return False


def _hint(spec: str, config: Config) -> str:
    meant = near(spec, config.targets)
    if meant:
        return f"Did you mean {meant!r}?"
    where = (
        f"{config.path} knows {', '.join(config.targets)}" if config.targets else "there is no infradoc.toml with it"
    )
    return f"Give a name ({where}), a URL such as http://127.0.0.1:8000, or a recording folder or .tar.gz that exists."
