"""Decides whether an answer is a metrics page, and says what it is instead."""

from __future__ import annotations

import re

from infradoc.sources.fetch import FetchError, Page

_SAMPLE = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})?[ \t]+[-+0-9NI]", re.MULTILINE)
_SNIFF_BYTES = 65_536


def check_status(page: Page) -> None:
    """Raise FetchError unless the answer is 200."""
    status = page.status
    if status == 200:
        return
    if status in (401, 403):
        hint = "Name its key in infradoc.toml: [targets.NAME.auth] api_key_env, bearer_env or basic_user."
        raise FetchError("auth", f"{page.url} answers {status}: it wants credentials.", hint)
    if status == 404:
        raise FetchError("missing", f"{page.url} answers 404: no metrics page there.", _HINT_404)
    if status == 501:  # llama.cpp's answer without --metrics
        raise FetchError(
            "missing", f"{page.url} answers 501: metrics are switched off.", "llama.cpp: start it with --metrics."
        )
    if 300 <= status < 400:
        raise FetchError("redirect", f"{page.url} answers {status}: it has moved.", "Give the final address.")
    raise FetchError("status", f"{page.url} answers {status}.", "See the server's log.")


_HINT_404 = "Are metrics switched on (llama.cpp: --metrics, SGLang: --enable-metrics)? Is this the server's root URL?"


def check_content(page: Page) -> None:
    """Raise FetchError when the body is no Prometheus text: HTML, JSON, empty, or something else."""
    start = page.body[:_SNIFF_BYTES].lstrip()
    if not start:
        raise FetchError("empty", f"{page.url} answers with an empty page.", "Is this the server's metrics page?")
    lower = start[:200].lower()
    if lower.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")) or "html" in page.content_type:
        hint = "Give the address of the LLM server itself, not of a dashboard or a proxy page."
        raise FetchError("html", f"{page.url} is a web page (HTML), not metrics.", hint)
    if start[:1] in (b"{", b"[") and "json" in page.content_type:
        raise FetchError("json", f"{page.url} answers with JSON, not Prometheus metrics.", "Is this the right path?")
    if not start.startswith(b"#") and _SAMPLE.search(start) is None:
        raise FetchError("foreign", f"{page.url} is no Prometheus metrics page.", "Check the address.")


def check_whole(page: Page, complete: bool) -> None:
    """Raise FetchError when a page of unknown length stops in the middle of a line: its last number may be cut."""
    if not page.sized and not complete and not page.body.endswith(b"\n"):
        raise FetchError("cut", f"{page.url} broke off in the middle of a line.", "Did the server die meanwhile?")
