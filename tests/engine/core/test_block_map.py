"""The map of blocks as run lengths."""

from __future__ import annotations

from infradoc_engine.core.block_map import run_lengths


def test_run_lengths() -> None:
    assert run_lengths([]) == []
    assert run_lengths(["live"]) == [("live", 1)]
    assert run_lengths(["live", "live", "free", "live"]) == [("live", 2), ("free", 1), ("live", 1)]
