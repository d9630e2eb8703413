"""The `[alerts]` tables of infradoc.toml, checked: a fault names file, line, key and what would be valid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from infradoc.alerts.backoff import Limit
from infradoc.alerts.core import GroupBy
from infradoc.alerts.incident import RANK
from infradoc.alerts.matchers import Matcher, parse_matcher
from infradoc.alerts.timing import Timing
from infradoc.config import Config, ConfigError
from infradoc.durations import seconds_of
from infradoc_rules.near import near

KINDS = (
    "webhook", "alertmanager_webhook", "alertmanager", "pagerduty", "cloudevents", "slack", "feishu", "dingtalk",
    "wecom", "apprise",
)  # fmt: skip
URL_IS_SECRET = frozenset({"slack", "feishu", "dingtalk", "wecom", "apprise"})
OPTIONAL_URL = frozenset({"pagerduty"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RATE = re.compile(r"(\d{1,6})\s*/\s*(s|min|h)")
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TIMES = ("group_wait", "group_interval", "repeat_interval", "pending", "resolve_after", "flap_half_life")
_LEAST = {"group_interval": 1.0, "flap_half_life": 1.0, "repeat_interval": 1.0}  # seconds
_TOP = ("state", "lang", "group_by", "critical_inhibits_warning", "keep", "sinks", *_TIMES)
_SECRETS = {
    "secret": "secret", "key": "key", "routing_key": "key", "token": "bearer", "bearer": "bearer",
    "password": "basic_password", "basic_password": "basic_password",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """One `[alerts.sinks.NAME]`. Secrets are named by variable or file only; `url` is for addresses that hold none.

    timeout bounds one attempt as a whole, give_up all attempts of a message (seconds). rate replaces the service's own
    limit. secret_env: several variables while a signing secret is being changed; all of them sign.
    """

    name: str
    kind: str
    lang: str = "en"
    url: str = ""
    url_env: str = ""
    url_file: str = ""
    secret_env: tuple[str, ...] = ()
    secret_file: tuple[str, ...] = ()
    key_env: str = ""
    key_file: str = ""
    bearer_env: str = ""
    bearer_file: str = ""
    basic_user: str = ""
    basic_password_env: str = ""
    basic_password_file: str = ""
    ca_file: str = ""
    proxy: str = ""
    allow_private: bool = False
    timeout: float = 10.0
    give_up: float = 86_400.0
    severity: str = "info"
    match: tuple[Matcher, ...] = ()
    send_resolved: bool = True
    rate: tuple[Limit, ...] = ()
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """All of `[alerts]`. `state`: the folder of the database, "" for the user's. keep: seconds of finished messages."""

    sinks: Mapping[str, SinkConfig] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    group_by: GroupBy = "target"
    critical_inhibits_warning: bool = False
    state: str = ""
    keep: float = 7 * 86_400.0


def alerts_config(config: Config) -> AlertsConfig:
    """Check and type `[alerts]`. Raises ConfigError."""
    return _Reader(config).alerts(config.alerts)


class _Reader:
    def __init__(self, config: Config) -> None:
        self.config = config

    def alerts(self, data: Mapping[str, Any]) -> AlertsConfig:
        self._known(data, _TOP, "alerts")
        lang = self._choice(data, "lang", "alerts", ("en", "zh"), "en")
        times = {key: self._seconds(data[key], f"alerts.{key}", _LEAST.get(key, 0.0)) for key in _TIMES if key in data}
        tables = data.get("sinks", {})
        if not isinstance(tables, dict):
            raise self._error("alerts.sinks", "must be a table of sinks, such as [alerts.sinks.ops]")
        sinks = {name: self.sink(name, table, lang) for name, table in tables.items()}
        made = AlertsConfig(sinks, replace(Timing(), **times))
        state = self._text(data, "state", "alerts")
        return replace(
            made,
            group_by=self._choice(data, "group_by", "alerts", ("target", "finding", "incident"), "target"),
            critical_inhibits_warning=self._flag(data, "critical_inhibits_warning", "alerts", False),
            state=self._path(state, "alerts.state") if state else "",
            keep=self._seconds(data["keep"], "alerts.keep") if "keep" in data else made.keep,
        )

    def sink(self, name: str, data: Any, lang: str) -> SinkConfig:
        where = f"alerts.sinks.{name}"
        if not isinstance(data, dict):
            raise self._error(where, "must be a table")
        if not _NAME.fullmatch(name):
            raise self._error(where, "a sink's name has letters, digits, '-', '_' and '.', at most 64")
        self._known(data, tuple(key for key in SinkConfig.__dataclass_fields__ if key != "name"), where)
        kind = self._choice(data, "kind", where, KINDS, "")
        if not kind:
            raise self._error(where, f"needs a `kind`: {', '.join(KINDS)}")
        values: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "lang": self._choice(data, "lang", where, ("en", "zh"), lang),
        }
        values |= {key: self._text(data, key, where) for key in _TEXTS if key in data}
        values |= {key: self._texts(data, key, where) for key in ("secret_env", "secret_file") if key in data}
        if "timeout" in data:
            values["timeout"] = self._seconds(data["timeout"], f"{where}.timeout", 0.1, 120.0)
        if "give_up" in data:
            values["give_up"] = self._seconds(data["give_up"], f"{where}.give_up")
        values |= {
            key: self._flag(data, key, where, False) for key in ("allow_private", "send_resolved") if key in data
        }
        values["severity"] = self._choice(data, "severity", where, tuple(RANK), "info")
        values["match"] = tuple(
            self._try(parse_matcher, text, f"{where}.match") for text in self._texts(data, "match", where)
        )
        if "rate" in data:
            values["rate"] = (self._rate(data["rate"], f"{where}.rate"),)
        if "concurrency" in data:
            values["concurrency"] = self._count(data["concurrency"], f"{where}.concurrency")
        resolved = {key: self._resolved(key, value, where) for key, value in values.items()}
        return self._check(SinkConfig(**resolved), where)

    def _check(self, sink: SinkConfig, where: str) -> SinkConfig:
        given = [key for key in ("url", "url_env", "url_file") if getattr(sink, key)]
        if len(given) > 1:
            raise self._error(f"{where}.{given[1]}", f"`{given[0]}` is there already; one of them is enough")
        if not given and sink.kind not in OPTIONAL_URL:
            secret = sink.kind in URL_IS_SECRET
            raise self._error(where, f"needs {'' if secret else '`url`, '}`url_env` or `url_file`")
        if sink.url:
            self._check_url(sink, where)
        if sink.kind == "pagerduty" and not (sink.key_env or sink.key_file):
            raise self._error(where, "needs `key_env` or `key_file`: the integration's routing key")
        if sink.proxy and (not re.match(r"https?://[^/\s@]+(:\d+)?/?$", sink.proxy)):
            raise self._error(f"{where}.proxy", "must be an http:// or https:// address without a password")
        if sink.basic_user and not (sink.basic_password_env or sink.basic_password_file):
            raise self._error(f"{where}.basic_user", "needs `basic_password_env` or `basic_password_file` as well")
        return sink

    def _check_url(self, sink: SinkConfig, where: str) -> None:
        if sink.kind in URL_IS_SECRET:
            hint = f"Use url_env (a variable) or url_file (a file of mode 0600) for {where}."
            raise self._error(f"{where}.url", f"the address of {sink.kind} holds its key and is not kept here", hint)
        try:
            parts = urlsplit(sink.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            good = False
        if not good:
            raise self._error(f"{where}.url", "must be an http:// or https:// address")
        if "@" in parts.netloc or re.search(r"(?i)(key|token|secret|sign|password)=", parts.query):
            hint = "Use url_env (a variable) or url_file (a file of mode 0600)."
            raise self._error(f"{where}.url", "holds a secret, and secrets are not kept in this file", hint)

    def _known(self, data: Mapping[str, Any], valid: tuple[str, ...], where: str) -> None:
        for key in data:
            if key in valid:
                continue
            if key in _SECRETS and "sinks." in where:
                hint = f"Use {_SECRETS[key]}_env (a variable) or {_SECRETS[key]}_file (a file of mode 0600)."
                raise self._error(f"{where}.{key}", "secrets are not kept in this file", hint)
            meant = near(key, valid)
            hint = f"Did you mean `{meant}`?" if meant else f"Valid here: {', '.join(valid)}."
            raise self._error(f"{where}.{key}", "unknown key", hint)

    def _text(self, data: Mapping[str, Any], key: str, where: str) -> str:
        value = data.get(key, "")
        if not isinstance(value, str) or not value.isprintable():
            raise self._error(f"{where}.{key}", "must be a text of one line")
        return value

    def _texts(self, data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        value = data.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise self._error(f"{where}.{key}", "must be a text or a list of texts")
        return tuple(items)

    def _flag(self, data: Mapping[str, Any], key: str, where: str, default: bool) -> bool:
        value = data.get(key, default)
        if not isinstance(value, bool):
            raise self._error(f"{where}.{key}", f"must be true or false, not {value!r}")
        return value

    def _choice(self, data: Mapping[str, Any], key: str, where: str, valid: tuple[str, ...], default: str) -> Any:
        value = data.get(key, default)
        if value != default and value not in valid:
            meant = near(str(value), valid)
            hint = f"Did you mean {meant!r}?" if meant else ""
            raise self._error(f"{where}.{key}", f"must be one of {', '.join(valid)}, not {value!r}", hint)
        return value

    def _seconds(self, value: Any, where: str, least: float = 0.0, most: float = 366 * 86_400.0) -> float:
        text = value if isinstance(value, str) else repr(value)  # 30 without quotes is as good as "30"
        seconds: float = self._try(lambda given: seconds_of(given, least, most), text, where)
        return seconds

    def _count(self, value: Any, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 64:
            raise self._error(where, f"must be a number from 1 to 64, not {value!r}")
        return value

    def _rate(self, value: Any, where: str) -> Limit:
        found = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None or int(found.group(1)) < 1:
            raise self._error(where, f'must be a rate such as "20/min" or "5/s", not {value!r}')
        return Limit(int(found.group(1)), _PER[found.group(2)])

    def _try(self, parse: Callable[[str], Any], text: str, where: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise self._error(where, str(error)) from error

    def _resolved(self, key: str, value: Any, where: str) -> Any:
        if key == "secret_file":
            return tuple(self._path(item, f"{where}.{key}") for item in value)
        return self._path(value, f"{where}.{key}") if key.endswith("_file") and value else value

    def _path(self, text: str, where: str) -> str:
        return str(self.config.path_at(where, text))

    def _error(self, place: str, what: str, hint: str = "") -> ConfigError:
        return self.config.error_at(place, what, hint)


_TEXTS = (
    "url", "url_env", "url_file", "key_env", "key_file", "bearer_env", "bearer_file", "basic_user",
    "basic_password_env", "basic_password_file", "ca_file", "proxy",
)  # fmt: skip
