"""The `[watch]` table of infradoc.toml, checked: a fault names file, line, key and what would be valid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc.config import Config
from infradoc.durations import LONGEST, seconds_of
from infradoc.errors import InfradocError
from infradoc_rules.near import near

DEFAULT_LISTEN = "127.0.0.1:9464"
OFF = "off"
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):(\d{1,5})")
_KEYS = ("targets", "period", "listen", "retention", "lang", "history")


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """What to watch and where to say so. Times in seconds; `listen` is (host, port), None for no server.

    `history` is the file of findings and vitals, None for the default place; `retention` how long rows are kept.
    """

    targets: tuple[str, ...] = ()
    period: float = 1.0
    listen: tuple[str, int] | None = ("127.0.0.1", 9464)
    retention: float = 30 * 86400.0
    lang: str = "en"
    history: Path | None = None


def read_watch(config: Config, specs: Sequence[str] = ()) -> WatchConfig:
    """The table, with `specs` from the command line in place of its targets; by default every configured target.

    Raises ConfigError for a fault in the file, InfradocError when there is nothing to watch.
    """
    table = dict(config.watch)
    for key in table:
        if key not in _KEYS:
            meant = near(key, _KEYS)
            hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(_KEYS)}."
            raise config.error_at(f"watch.{key}", "is no known key", hint)
    made = WatchConfig(
        targets=_targets(config, table, specs),
        period=_span(config, table, "period", "1s", 0.2, 3600.0),
        listen=_listen(config, table),
        retention=_span(config, table, "retention", "30d", 60.0, LONGEST),
        lang=_choice(config, table, "lang", ("en", "zh")),
        history=_path(config, table, "history"),
    )
    if not made.targets:
        raise InfradocError(
            "There is nothing to watch.", f"Name a target, or add [targets.NAME] with its url to {config.name}."
        )
    return made


def _targets(config: Config, table: dict[str, Any], specs: Sequence[str]) -> tuple[str, ...]:
    listed = table.get("targets", [])
    if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
        raise config.error_at("watch.targets", 'must be a list of names or URLs, such as ["prod"]')
    return tuple(dict.fromkeys(specs or listed or config.targets))


def _span(config: Config, table: dict[str, Any], key: str, default: str, least: float, most: float) -> float:
    given = table.get(key, default)
    try:
        return seconds_of(given if isinstance(given, str) else repr(given), least, most)
    except ValueError as error:
        raise config.error_at(f"watch.{key}", str(error)) from None


def _listen(config: Config, table: dict[str, Any]) -> tuple[str, int] | None:
    text = table.get("listen", DEFAULT_LISTEN)
    try:
        return parse_listen(str(text))
    except ValueError:
        raise config.error_at("watch.listen", f"must be HOST:PORT or {OFF!r}, not {text!r}") from None


def parse_listen(text: str) -> tuple[str, int] | None:
    """(host, port) of HOST:PORT, None for "off". Raises ValueError for what is neither."""
    if text == OFF:
        return None
    found = _LISTEN.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        raise ValueError(text)
    return found[1].strip("[]") or "0.0.0.0", int(found[2])


def _choice(config: Config, table: dict[str, Any], key: str, valid: tuple[str, ...]) -> str:
    text = table.get(key, valid[0])
    if text not in valid:
        raise config.error_at(f"watch.{key}", f"must be one of {', '.join(valid)}, not {text!r}")
    return str(text)


def _path(config: Config, table: dict[str, Any], key: str) -> Path | None:
    text = table.get(key, "")
    if not isinstance(text, str) or "\0" in text:
        raise config.error_at(f"watch.{key}", "must be a path")
    return config.path_at(f"watch.{key}", text) if text else None
