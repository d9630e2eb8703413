"""What only the bundled engine shows: its block map and its requests one by one. Asks over HTTP: for a thread."""

from __future__ import annotations

import json
from typing import Any

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.sources.admin import token_for
from infradoc.sources.fetch import Fetcher
from infradoc.sources.metrics_page import server_root

_SECONDS = 5.0  # a person looks at it: a late answer is none


class EngineViewError(InfradocError):
    """The engine does not show it; says why."""


class EngineView:
    """`/admin/blocks` and `/admin/requests` of one engine. `asked`: infradoc.toml names it, see `token_for`."""

    def __init__(self, url: str, auth: Auth, asked: bool = False) -> None:
        self._root = server_root(url)
        self._auth, self._asked = auth, asked
        self._fetcher = Fetcher(url, auth, total_seconds=_SECONDS)

    def blocks(self) -> dict[str, Any]:
        """Ledger, states and owners of all blocks. Raises EngineViewError, SecretError, FetchError."""
        return self._get("/admin/blocks")

    def requests(self) -> list[dict[str, Any]]:
        """Requests in flight and those that finished lately. Raises EngineViewError, SecretError, FetchError."""
        rows = self._get("/admin/requests").get("requests")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def _get(self, path: str) -> dict[str, Any]:
        token = token_for(self._root, self._auth, asked=self._asked)
        if token is None:
            self._fetcher.get(f"{self._root}/health")  # of a server that is gone, that is the fault to tell
            raise EngineViewError(f"No admin token for {self._root} was found.", "Set INFRADOC_ADMIN_TOKEN.")
        page = self._fetcher.get(self._root + path, token=token)
        if page.status != 200:
            raise EngineViewError(f"{self._root}{path} answers {page.status}.", "Is it the bundled engine?")
        try:
            data = json.loads(page.body)
        except (ValueError, RecursionError) as error:
            raise EngineViewError(f"{self._root}{path} is no JSON.", "Is it the bundled engine?") from error
        return data if isinstance(data, dict) else {}

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()
