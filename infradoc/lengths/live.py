"""Lengths of a live server or a recording: its histograms since the start, or each request where it tells them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.lengths.files import LengthsError, add_row
from infradoc.lengths.measured import Bounds, Measured, token_count
from infradoc.lengths.proposal import Limits
from infradoc.monitor.attach import Target, attach
from infradoc.signals.frame import StoreFrame
from infradoc.signals.percentiles import MIN_SAMPLES_P99, upper_bound
from infradoc.signals.window import last_values
from infradoc.sources.admin import AdminSource
from infradoc.sources.fetch import Fetcher
from infradoc.sources.metrics_page import server_root
from infradoc_rules.advise.base import Advice

UNCUT = "llm_prompt_tokens_before_truncation"


def read_server(spec: str, config: Config) -> tuple[Measured, Limits]:
    """One look at a live server. Raises TargetError, LengthsError and whatever hinders the look."""
    target = attach(spec, config)
    try:
        now = time.time()
        for source in target.sources:
            if source.is_supported():
                target.store.add(source.read(now))
        error = target.store.errors.get("metrics")
        if error is not None:
            raise LengthsError(error)
        frame = StoreFrame(target.store, now)
        limits = limits_of(frame)
        if limits.max_model_len is None:
            limits = limits.with_length(asked_length(target))
        return each_request(target, frame) or from_frame(frame, spec), limits
    finally:
        target.close()


def read_recording(path: Path) -> tuple[Measured, Limits]:
    """A recording: its client's rows when there are enough of them, else the last page's histograms."""
    from infradoc.monitor.replay import Replay
    from infradoc_rules.catalog import Catalog

    replay = Replay(path, Catalog(()))
    replay.run()
    limits = limits_of(replay.last.frame) if replay.last is not None else Limits()
    rows = Measured(f"client rows of {path.name}")
    for row in replay.recording.rows("client.jsonl"):
        add_row(rows, row)
    if rows.n >= MIN_SAMPLES_P99 or replay.last is None:
        return rows, limits
    try:
        buckets = from_frame(replay.last.frame, path.name)
    except LengthsError:
        if rows.n:
            return rows, limits
        raise
    return rows if rows.n >= buckets.n else buckets, limits


def from_frame(frame: StoreFrame, name: str) -> Measured:
    """Histograms of prompt and output lengths since the server's start. Raises LengthsError when it has none."""
    prompt, output = (buckets_of(frame, f"llm_request_{part}_tokens") for part in ("prompt", "output"))
    whole = buckets_of(frame, UNCUT)
    if max(whole.values(), default=0.0) >= MIN_SAMPLES_P99:  # what was cut or refused is in it, at its full length
        prompt = whole
    if not prompt or not output:
        raise LengthsError(
            f"{name} shows no histograms of request lengths.",
            "vLLM, SGLang, TGI and the bundled engine do once a request has finished; else give a log or JSON lines.",
        )
    return Measured(f"histograms of {name}", bounds=Bounds(prompt, output))


def buckets_of(frame: StoreFrame, name: str) -> dict[float, float]:
    """Upper bound -> cumulative count, over all series of a histogram."""
    counts: dict[float, float] = {}
    for labels, value in last_values(frame, f"{name}_bucket", math.inf):
        bound = upper_bound(labels)
        if bound is not None:
            counts[bound] = counts.get(bound, 0.0) + value
    return counts


def each_request(target: Target, frame: StoreFrame) -> Measured | None:
    """The bundled engine's finished requests one by one, when it still knows enough of them for a P99.

    None where prompts are cut: a finished request then tells what was left of it.
    """
    if any(value > 0 for _, value in last_values(frame, "llm_requests_truncated_total", math.inf)):
        return None
    admin = next((source for source in target.sources if isinstance(source, AdminSource)), None)
    if admin is None or not admin.is_supported():
        return None
    try:
        rows = admin.requests()
    except InfradocError:
        return None  # the histograms tell it as well, in buckets
    found = Measured(f"finished requests of {target.name}")
    for row in rows:
        if row.get("state") == "finished" and row.get("finish_reason") in ("stop", "length"):
            found.add(token_count(row.get("prompt_tokens")), token_count(row.get("output_tokens")))
    return found if found.n >= MIN_SAMPLES_P99 else None


def limits_of(frame: StoreFrame) -> Limits:
    """What the server says of its own limits."""
    facts: Mapping[str, Any] = frame.facts
    pool = [value for _, value in last_values(frame, "llm_kv_pool_tokens", math.inf)]
    size = [value for _, value in last_values(frame, "llm_kv_block_size_tokens", math.inf)]
    known = {name: facts[name].value for name in ("max_model_len", "max_num_seqs") if name in facts}
    return Limits(
        system=frame.system,
        max_model_len=token_count(known.get("max_model_len")),
        max_num_seqs=token_count(known.get("max_num_seqs")),
        pool_tokens=int(sum(pool)) if pool else None,
        block_size=int(max(size)) if size else None,
        running=Advice(frame, {}).running,
    )


def asked_length(target: Target) -> int | None:
    """max_model_len as `/v1/models` of vLLM and SGLang tells it; None where it does not."""
    fetcher = Fetcher(target.url, target.config.auth)
    try:
        page = fetcher.get(server_root(target.url) + "/v1/models")
        cards = json.loads(page.body)["data"] if page.status == 200 else []
        return next((found for card in cards if (found := token_count(card.get("max_model_len")))), None)
    except (InfradocError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    finally:
        fetcher.close()
