"""The server's own metrics page: fetched, checked, recognised and mapped."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from infradoc.config import Auth
from infradoc.errors import InfradocError
from infradoc.model import Reading
from infradoc.sources.fetch import Fetcher, FetchError, Page
from infradoc.sources.mapping import MappedPage, PageMapper, UnknownPage, unknown_page
from infradoc.sources.page_check import check_content, check_status, check_whole
from infradoc_rules.model import Fact

# Where an engine tells its version: (path, keys to look under).
_VERSION_PAGES = {
    "vllm": ("/version", ("version",)),
    "sglang": ("/server_info", ("version",)),
    "tgi": ("/info", ("version",)),
    "llamacpp": ("/props", ("build_info",)),
}
_TRY_ELSEWHERE = frozenset({"missing", "html", "json", "empty", "foreign"})


def server_root(url: str) -> str:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def candidates(url: str) -> list[str]:
    """Addresses to try for the metrics page of a server, the most likely first."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    exact = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    beside = urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))
    root = f"{server_root(url)}/metrics"
    order = [exact, root] if "metrics" in path else [beside, root]
    return list(dict.fromkeys(order))


class MetricsPageSource:
    """Scrapes one server. The first good answer settles address and engine."""

    name = "metrics"
    interval = 0.0

    def __init__(self, url: str, auth: Auth | None = None, system: str | None = None) -> None:
        self.url = url
        self._fetcher = Fetcher(url, auth or Auth())
        self._mapper = PageMapper(system or None)
        self._settled: str | None = None
        self._version: str | None = None
        self._version_asked = False
        self.unparsed_lines = 0
        self.failed_kind: str | None = None
        self.last_page: Page | None = None

    @property
    def system(self) -> str | None:
        """The engine, once recognised."""
        return self._mapper.system

    @property
    def provides(self) -> frozenset[str]:
        """Canonical signals that this engine's page can show."""
        return self._mapper.provides

    def keep_buckets(self, names: frozenset[str]) -> None:
        """Keep only these `_bucket` series of histograms, by canonical name; call before the first look.

        Four in five samples of a page are buckets, and most histograms are asked for their sum and count alone.
        """
        self._mapper.buckets = names

    @property
    def page_url(self) -> str:
        """The address that answered, or the first one to try."""
        return self._settled or candidates(self.url)[0]

    def is_supported(self) -> bool:
        """Always: whether the server answers is found out by looking."""
        return True

    def read(self, now: float) -> Reading:
        """Scrape once."""
        self.last_page = None
        try:
            page, mapped = self._scrape(now)
        except FetchError as error:
            self.failed_kind = error.kind
            return Reading(self.name, now, error=str(error))
        except InfradocError as error:
            self.failed_kind = "credentials"
            return Reading(self.name, now, error=str(error))
        self.failed_kind = None
        self.unparsed_lines = mapped.garbage
        facts = [Fact("target.system", str(self.system), "metrics", page.url), *mapped.facts]
        facts += self._version_fact()
        facts = [replace(fact, source=fact.source or page.url) for fact in facts]
        return Reading(self.name, now, mapped.samples, facts=facts, seconds=page.seconds)

    def _scrape(self, now: float) -> tuple[Page, MappedPage]:
        if self._settled:
            return self._try(self._settled, now)
        first: FetchError | None = None
        for url in candidates(self.url):
            try:
                result = self._try(url, now)
            except FetchError as error:
                first = first or error
                if error.kind not in _TRY_ELSEWHERE:
                    raise
                continue
            self._settled = url
            return result
        assert first is not None
        raise first

    def _try(self, url: str, now: float) -> tuple[Page, MappedPage]:
        page = self._fetcher.get(url)
        self.last_page = page
        check_status(page)
        check_content(page)
        try:
            mapped = self._mapper.page(page.body, now)
        except UnknownPage as unknown:
            raise FetchError("unknown", *unknown_page(url, unknown.names)) from unknown
        check_whole(page, mapped.complete)
        if not mapped.samples:
            raise FetchError(
                "empty", f"{url} shows no metric that infradoc knows.", "Did the engine switch metrics off?"
            )
        return page, mapped

    def _version_fact(self) -> list[Fact]:
        if not self._version_asked:
            self._version_asked = True
            self._version = self._ask_version()
        return [Fact("target.version", self._version, "api")] if self._version else []

    def _ask_version(self) -> str | None:
        known = _VERSION_PAGES.get(self.system or "")
        if known is None:
            return None
        path, keys = known
        try:
            page = self._fetcher.get(server_root(self.url) + path, max_bytes=4 * 1024 * 1024)
            data = json.loads(page.body) if page.status == 200 else {}
        except (FetchError, ValueError, RecursionError):
            return None  # a version is a nicety: its absence is shown as "unknown" in the report
        return next((str(data[key]) for key in keys if isinstance(data, dict) and data.get(key)), None)

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()
