"""The bundled engine's admin API: knobs with their origin and bounds, hints for sizing, the block ledger."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.model import Reading
from infradoc.sources.credentials import ADMIN_TOKEN_ENV, admin_token
from infradoc.sources.fetch import Fetcher, FetchError, is_loopback
from infradoc.sources.metrics_page import server_root
from infradoc_rules.model import Event, Fact

Origin = Literal["flag", "config", "log", "default", "api", "metrics", "file"]
_ORIGINS = frozenset({"flag", "config", "log", "default", "api", "metrics", "file"})


def token_for(url: str, auth: Auth, *, asked: bool = False) -> str | None:
    """The admin token for the engine at `url`, None where there is none that it may be shown; see `admin_token`.

    The token files of this machine open its own engines: no other host is shown one, whatever its port.
    """
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return admin_token(auth, port if is_loopback(url) else None, asked=asked)


class AdminSource:
    """Asks `/admin/config` and `/admin/blocks` now and then. Needs the admin token; `asked` as for `token_for`."""

    name = "admin"
    provides: frozenset[str] = frozenset()

    def __init__(
        self,
        url: str,
        auth: Auth | None = None,
        interval: float = 5.0,
        wanted: Callable[[], bool] | None = None,
        asked: bool = False,
    ) -> None:
        self.interval = interval
        self._wanted = wanted
        self.root = server_root(url)
        self._asked = asked
        self._auth = auth or Auth()
        self._fetcher = Fetcher(url, self._auth)

    def token(self) -> str | None:
        """The admin token, if it can be had. Raises SecretError when one is configured and missing."""
        return token_for(self.root, self._auth, asked=self._asked)

    def why_not(self) -> str | None:
        """Why a bundled engine's configuration cannot be seen although a token is at hand; None when it can."""
        if self._asked or (self._wanted is not None and not self._wanted()):
            return None
        if self.is_supported() or not os.environ.get(ADMIN_TOKEN_ENV, "").strip():
            return None
        return (
            f"{ADMIN_TOKEN_ENV} is sent only to this machine and to targets of infradoc.toml: name {self.root} there."
        )

    def is_supported(self) -> bool:
        """Whether the target is the bundled engine and there is a token to ask with."""
        if self._wanted is not None and not self._wanted():
            return False
        try:
            return self.token() is not None
        except InfradocError:
            return True  # configured but not to be had: the reading tells why

    def read(self, now: float) -> Reading:
        """Knobs and hints as facts."""
        started = time.monotonic()
        try:
            config = self._get("/admin/config")
            blocks = self._get("/admin/blocks")
        except InfradocError as error:
            return Reading(self.name, now, error=str(error))
        source = f"{self.root}/admin/config"
        facts = [*knob_facts(config, source), *hint_facts(config, source)]
        facts += leaked_facts(blocks, f"{self.root}/admin/blocks")
        events = integrity_events(blocks, now, f"{self.root}/admin/blocks")
        return Reading(self.name, now, events=events, facts=facts, seconds=time.monotonic() - started)

    def requests(self) -> list[dict[str, Any]]:
        """Requests in flight and those that finished lately, one by one. Raises FetchError, SecretError."""
        rows = self._get("/admin/requests").get("requests")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def _get(self, path: str) -> dict[str, Any]:
        token = self.token()
        if token is None:
            hint = "Set INFRADOC_ADMIN_TOKEN, or admin_token_env in infradoc.toml."
            raise FetchError("auth", f"No admin token for {self.root} was found.", hint)
        page = self._fetcher.get(self.root + path, token=token)
        if page.status == 401:
            raise FetchError("auth", f"{self.root}{path} refuses the admin token.", "Is it the token of this server?")
        if page.status != 200:
            raise FetchError("status", f"{self.root}{path} answers {page.status}.", "Is it the bundled engine?")
        try:
            data = json.loads(page.body)
        except (ValueError, RecursionError) as error:
            raise FetchError("json", f"{self.root}{path} is no JSON.", "Is it the bundled engine?") from error
        return data if isinstance(data, dict) else {}

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()


def knob_facts(config: dict[str, Any], source: str) -> list[Fact]:
    """One fact per knob of `/admin/config` that has a value."""
    facts = []
    if isinstance(config.get("engine_version"), str):
        facts.append(Fact("target.version", config["engine_version"], "api", source))
    for name, entry in (config.get("knobs") or {}).items():
        value = entry.get("value") if isinstance(entry, dict) else None
        if isinstance(value, int | float | str | bool):
            facts.append(Fact(str(name), value, _origin(entry.get("origin")), source))
    return facts


def hint_facts(config: dict[str, Any], source: str) -> list[Fact]:
    """`hint.*`: figures that sizing needs and no metric shows, such as bytes of KV per token and free memory."""
    hints = config.get("hints") or {}
    return [
        Fact(f"hint.{name}", value, "api", source)
        for name, value in hints.items()
        if isinstance(value, int | float | str | bool)
    ]


def leaked_facts(blocks: dict[str, Any], source: str) -> list[Fact]:
    """`kv.leaked_owner` and `kv.leaked_age_seconds`: whose the block was that has been lost for longest."""
    rows = blocks.get("leaked")
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    aged = [row for row in known if isinstance(row.get("age_seconds"), int | float)]
    if not aged:
        return []
    oldest = max(aged, key=lambda row: float(row["age_seconds"]))
    facts = [Fact("kv.leaked_age_seconds", round(float(oldest["age_seconds"]), 1), "api", source)]
    if isinstance(oldest.get("owner"), str):
        facts.append(Fact("kv.leaked_owner", oldest["owner"][:200], "api", source))
    return facts


def integrity_events(blocks: dict[str, Any], now: float, source: str) -> list[Event]:
    """An event when the engine's own audit of its block ledger fails."""
    verdict = blocks.get("integrity")
    if verdict is None or str(verdict).startswith("ok"):  # leaks have a rule of their own
        return []
    return [Event("kv_check_failed", 0, {"pool": "kv", "fatal": False}, now, "serving", source, str(verdict)[:500])]


def _origin(text: Any) -> Origin:
    return text if text in _ORIGINS else "api"
