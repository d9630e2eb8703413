"""What each panel shows, as text: with letters, so that it reads without colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from infradoc.fleet.frozen import freeze
from infradoc.fleet.model import Mark
from infradoc.fleet.replaying import ReplayView
from infradoc.tui.downsample import Axis, ColumnCache
from infradoc.tui.paint import Palette
from infradoc.tui.panels import BY_KEY, PANELS
from infradoc.tui.panels.blocks import reduced
from infradoc.tui.panels.context import NAMES, Context, EngineTold
from infradoc.tui.panels.ledger import cells
from infradoc.tui.panels.requests import paint_requests
from infradoc.tui.widgets.plot import Line, Plot, paint_plot
from infradoc.tui.words import words


@pytest.fixture
def context(replay: Callable[[str, str], ReplayView]) -> Context:
    view = replay("vllm-05", "en")
    view.seek(None)
    with view.reading() as frame:
        frozen = freeze(frame, NAMES)
    begin, end = view.span
    told = EngineTold(why="a recording does not hold it.")
    return Context(frozen, begin, end, view.marks(), ColumnCache(), Palette(), words("en"), told, 80, 12)


def text(strips: list[Any]) -> list[str]:
    return [strip.text for strip in strips]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", [(10, 3), (40, 6), (80, 12), (300, 50)])
def test_every_panel_fits_every_size(context: Context, size: tuple[int, int], lang: str) -> None:
    for panel in PANELS:
        strips = panel.paint(replace(context, say=words(lang)).sized(*size))
        assert strips, panel.title
        if panel.key in "1234":
            assert len(strips) == max(size[1], 4)
            assert all(strip.cell_length <= max(size[0], 11) for strip in strips), panel.title


def test_a_second_painting_computes_the_last_column_only(context: Context) -> None:
    for panel in PANELS:
        panel.paint(context)
    first = context.cache.computed
    for panel in PANELS:
        panel.paint(context)
    lines = 5 + 2 * 3
    assert first > 20 * lines and context.cache.computed - first == lines


def test_throughput_and_queue_say_their_last_values(context: Context) -> None:
    assert "generated tokens/s 7" in text(BY_KEY["1"].paint(context))[0]
    assert "waiting 8  ━ running 8" in text(BY_KEY["4"].paint(context))[0]


def test_no_percentile_from_too_few_requests(context: Context) -> None:
    head = text(BY_KEY["2"].paint(context))[0]
    assert "P99 - (n<100)" in head and "n 1" in head
    assert "P99 2.0 s" in text(BY_KEY["3"].paint(context))[0]


def test_marks_stand_on_the_axis_as_letters(context: Context) -> None:
    axis = text(BY_KEY["4"].paint(context))[-2]
    assert axis.count("F") == 2
    now = context.frame.now
    kinds = ("change", "fix", "lost", "back", "resolved")
    marks = [Mark(now - 10 - 5 * place, kind, "x", "x") for place, kind in enumerate(kinds)]  # type: ignore[arg-type]
    axis = text(BY_KEY["4"].paint(replace(context, marks=marks)))[-2]
    assert [c for c in axis if c.isalpha()] == ["o", "b", "L", "X", "C"]


def test_a_single_peak_among_many_samples_is_drawn() -> None:
    low, high = np.zeros(40), np.zeros(40)
    high[20] = 100.0
    plot = Plot(Axis(0, 1.0, 40), [Line("x", low, high, "0")], lambda value: f"{value:g}")
    rows = text(paint_plot(plot, 29, 8, Palette()))
    columns = [row[9:] for row in rows[1:6]]
    assert all(row[10] != " " for row in columns) and sum(c != " " for c in columns[0]) == 1
    assert rows[1].startswith("     100┤") and rows[5].startswith("       0┤")


def test_the_ledger_bar_has_a_letter_for_each_stage(context: Context) -> None:
    rows = text(BY_KEY["6"].paint(context))
    assert "requests in 60 s" in rows[0] and len(rows[1]) == 80 and set(rows[1]) <= set("PDQ") and "D" in rows[1]
    assert any(row.startswith("D decode") for row in rows)


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.5], [0.333, 0.333, 0.334], [0.001] * 3 + [0.997]])
@pytest.mark.parametrize("width", [1, 7, 80])
def test_cells_of_a_stacked_bar_add_up(shares: list[float], width: int) -> None:
    given = cells(shares, width)
    assert sum(given) == width and all(abs(n - share * width) < 1 for n, share in zip(given, shares, strict=True))


def test_the_block_map_reads_without_colour(context: Context) -> None:
    told = EngineTold(
        {
            "runs": [["live", 2], ["free", 3], ["cached", 1], ["shared", 1], ["reserved", 1], ["leaked", 2]],
            "ledger": {"live": 2, "free": 3, "cached": 1, "shared": 1, "reserved": 1, "leaked": 2},
            "leaked": [{"block": 9, "owner": "req-abc", "age_seconds": 61.0}],
        },
        [{"id": "req-long", "blocks": 3, "received": 100.0}],
        now=107.0,
    )
    rows = text(BY_KEY["5"].paint(replace(context, engine=told)))
    assert rows[0] == "LL···cSr!!"
    assert "! leaked 2" in rows[1] and "req-long 3 (7 s)" in rows[2] and "9 req-abc (61 s)" in rows[3]


@pytest.mark.parametrize("cells_there", [1, 3, 7, 100])
def test_a_leaked_block_is_never_lost_in_a_large_pool(cells_there: int) -> None:
    states, each = reduced([("free", 5000), ("leaked", 1), ("live", 5000)], cells_there)
    assert len(states) <= cells_there and "leaked" in states and each == -(-10001 // cells_there)


def test_without_the_admin_api_the_history_stands_in_with_a_sentence(context: Context) -> None:
    rows = text(BY_KEY["5"].paint(context))
    assert "a recording does not" in rows[0] and any("KV in use 96%" in row for row in rows)


def test_requests_tell_why_they_lost_their_blocks(context: Context) -> None:
    lost = [{"reason": "kv_full", "for_request": "req-12345678"}, {"reason": "priority"}]
    rows = [
        {"id": "a", "state": "finished", "finish_reason": "stop", "received": 1.0, "end_to_end_seconds": 2.5},
        {
            "id": "b",
            "state": "running",
            "received": 100.0,
            "prompt_tokens": 7,
            "output_tokens": 3,
            "blocks": 2,
            "stages": {"decode": 3.0, "queue": 1.25, "send": 0.0},
            "preemptions": lost,
        },
    ]
    head, running, finished = text(paint_requests(replace(context, engine=EngineTold({}, rows, 105.0))))
    assert head.startswith("request") and running.startswith("b ") and "7/3" in running and "5.0 s" in running
    assert "D 3.0 s  Q 1.2 s" in running and "2x kv_full, priority" in running
    assert finished.startswith("a ") and "stop" in finished and "2.5 s" in finished
