"""What each panel of the target screen shows: from series to painted rows. Runs in a worker, never on the UI thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textual.strip import Strip

from infradoc.tui.panels.blocks import paint_blocks
from infradoc.tui.panels.context import Context
from infradoc.tui.panels.ledger import paint_ledger
from infradoc.tui.panels.machine import paint_machine
from infradoc.tui.panels.requests import paint_requests
from infradoc.tui.panels.series import paint_itl, paint_queue, paint_throughput, paint_ttft


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """One panel: `key` is the digit that shows it, `title` a word, `paint` its painter."""

    key: str
    title: str
    paint: Callable[[Context], list[Strip]]


PANELS = (
    PanelSpec("1", "throughput", paint_throughput),
    PanelSpec("2", "ttft_panel", paint_ttft),
    PanelSpec("3", "itl_panel", paint_itl),
    PanelSpec("4", "queue", paint_queue),
    PanelSpec("5", "blocks", paint_blocks),
    PanelSpec("6", "ledger", paint_ledger),
    PanelSpec("7", "requests", paint_requests),
    PanelSpec("8", "machine", paint_machine),
)
BY_KEY: Mapping[str, PanelSpec] = {panel.key: panel for panel in PANELS}
