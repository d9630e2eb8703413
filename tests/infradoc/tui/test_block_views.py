"""The map of KV blocks by owner and by age: painted, hostile, exported, and cycled by its key on the real screen."""

from __future__ import annotations

import asyncio
import csv
import io
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.fleet.frozen import freeze
from infradoc.fleet.model import Mark, Watched
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Store
from infradoc.tui.app import DoctorApp
from infradoc.tui.downsample import ColumnCache
from infradoc.tui.export import blocks_csv
from infradoc.tui.paint import Palette
from infradoc.tui.panels.block_holders import cells_of, clean_pieces, holders, letters
from infradoc.tui.panels.block_views import bounds
from infradoc.tui.panels.blocks import paint_blocks
from infradoc.tui.panels.context import NAMES, BlockView, Context, EngineTold
from infradoc.tui.widgets.panel import Panel
from infradoc.tui.words import words

Settle = Callable[[Any], Awaitable[None]]
TOLD = {
    "runs": [["live", 5], ["shared", 2], ["free", 2], ["cached", 1], ["reserved", 1], ["leaked", 1]],
    "owners": [["req-a", 40.0, 3], ["req-b", 0.2, 2], ["2 requests", 7300, 2], [None, None, 4], ["req-gone", 99.0, 1]],
    "owners_step": 1,
    "ledger": {"live": 5, "shared": 2, "free": 2, "cached": 1, "reserved": 1, "leaked": 1},
    "leaked": [{"block": 11, "owner": "req-gone", "age_seconds": 99.0}],
}
OLDER = {key: value for key, value in TOLD.items() if not key.startswith("owners")}
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just("live")),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def draw() -> Callable[..., list[str]]:
    """draw(view, told, width=80, height=12, lang="en") -> the rows of the panel."""
    frozen = freeze(Store().frame(100.0), NAMES)

    def rows(view: BlockView, told: dict[str, Any], width: int = 80, height: int = 12, lang: str = "en") -> list[str]:
        engine = EngineTold(told, [{"id": "req-long", "blocks": 3, "received": 1.0}], 107.0)
        context = Context(frozen, 0.0, 100.0, (), ColumnCache(), Palette(), words(lang), engine, block_view=view)
        return [strip.text for strip in paint_blocks(context.sized(width, height))]

    return rows


def test_by_owner_each_request_has_a_letter_and_the_legend_names_it(draw: Callable[..., list[str]]) -> None:
    rows = draw("owner", TOLD)
    given = letters(["req-a", "req-b"])
    a, b = given["req-a"], given["req-b"]
    assert a != b and a.isupper() and b.isupper()
    assert rows[0] == f"{a * 3}{b * 2}##··:-!"
    assert f"{a} req-a 3 (40 s)  {b} req-b 2 (0 s)" in rows[1]
    assert "# shared 2  · free 2  : cached 1" in rows[1] and "- reserved 1  ! leaked 1" in rows[2]
    assert "11 req-gone (99 s)" in rows[-1] and not any("req-gone 1 (" in row for row in rows)


def test_by_age_each_block_has_a_digit_and_the_legend_says_the_bounds(draw: Callable[..., list[str]]) -> None:
    rows = draw("age", TOLD)
    assert rows[0] == "4440088··:-!"
    assert rows[1].startswith("0 <1 s: 2  4 30 s-2 min: 3  8 60 min-3.0 h: 2  · free 2")
    assert [bounds(digit) for digit in (1, 9)] == ["1 s-3 s", ">=3.0 h"]


@pytest.mark.parametrize("view", ["owner", "age"])
@pytest.mark.parametrize(
    "told",
    [OLDER, TOLD | {"owners": [["req-a", 1.0, 3]]}, TOLD | {"owners": "x"}, TOLD | {"owners": [["a", 1.0, True]] * 12}],
)
def test_an_engine_without_owners_is_shown_by_state_with_a_sentence(
    draw: Callable[..., list[str]], view: BlockView, told: dict[str, Any]
) -> None:
    rows = draw(view, told)
    assert rows[0] == "LLLLLSS··cr!" and "does not tell owners" in rows[1]
    assert rows[2:] == draw("state", told)[1:]
    assert "不提供持有者" in "".join(draw(view, told, lang="zh"))


def test_where_blocks_share_a_cell_the_largest_owner_and_the_oldest_block_show(draw: Callable[..., list[str]]) -> None:
    runs = [["live", 30], ["free", 10], ["leaked", 1], ["free", 1959]]
    rows = [["req-a", 5.0, 8], ["req-b", 400.0, 2], ["req-b", 1.0, 20], [None, None, 10], [None, 9.0, 1]]
    told = {"runs": runs, "owners": [*rows, [None, None, 1959]], "owners_step": 10}
    pieces = clean_pieces(told)
    assert cells_of(pieces, 10, 200)[:4] == [("req-a", 400.0), ("req-b", 1.0), ("req-b", 1.0), (None, None)]
    given = letters(["req-b", "req-a"])
    a, b = given["req-a"], given["req-b"]
    by_owner, by_age = draw("owner", told, 100, 10), draw("age", told, 100, 10)
    assert by_owner[0].startswith(f"{a * 3}{b * 7}···!··") and by_age[0].startswith("2266111111···!··")
    assert any("one cell is 3 blocks or less: the letter of" in row for row in by_owner)
    assert any("groups of 10 blocks" in row for row in by_owner) and f"{a} req-a 8 (5 s)" in " ".join(by_owner)


@given(st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=80))
def test_letters_are_unique_and_stay_while_the_order_changes(names: list[str]) -> None:
    given_letters = letters(names)
    assert len(given_letters) == len(set(given_letters.values())) == min(len(names), 52)
    if len(names) <= 26:
        assert letters(names[::-1]) == given_letters


@given(st.lists(st.tuples(st.sampled_from(["live", "free", "leaked"]), st.integers(0, 5)), max_size=6), st.data())
def test_pieces_cover_the_states_and_the_owners(runs: list[tuple[str, int]], data: st.DataObject) -> None:
    total = sum(length for _, length in runs)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=5)))
    lengths = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    owners = [[f"r{place}", float(place), length] for place, length in enumerate(lengths)]
    pieces = clean_pieces({"runs": [list(run) for run in runs], "owners": owners})
    assert [p.state for p in pieces for _ in range(p.blocks)] == [state for state, n in runs for _ in range(n)]
    assert [p.owner for p in pieces for _ in range(p.blocks)] == [name for name, _, n in owners for _ in range(n)]
    assert [p.start for p in pieces] == [sum(p.blocks for p in pieces[:place]) for place in range(len(pieces))]
    live = sum(piece.blocks for piece in pieces if piece.state != "leaked")
    assert sum(blocks for blocks, _ in holders(pieces).values()) == live


@given(ANYTHING, ANYTHING, ANYTHING, st.sampled_from(["state", "owner", "age"]))
def test_whatever_an_engine_sends_is_drawn_and_exported(runs: Any, owners: Any, step: Any, view: BlockView) -> None:
    told = {"runs": runs, "owners": owners, "owners_step": step, "leaked": owners}
    context = Context(
        freeze(Store().frame(1.0), NAMES), 0.0, 1.0, (), ColumnCache(), Palette(), words("en"), EngineTold(told)
    )
    assert paint_blocks(replace(context, block_view=view))
    blocks_csv(told)


def test_the_export_has_state_owner_and_age_of_all_blocks() -> None:
    rows = list(csv.DictReader(io.StringIO(blocks_csv(TOLD))))
    assert [
        (row["first_block"], row["blocks"], row["state"], row["owner"], row["age_seconds"]) for row in rows[:4]
    ] == [
        ("0", "3", "live", "req-a", "40"),
        ("3", "2", "live", "req-b", "0.2"),
        ("5", "2", "shared", "2 requests", "7300"),
        ("7", "2", "free", "", ""),
    ]
    assert sum(int(row["blocks"]) for row in rows) == 12 and {row["owner_step"] for row in rows} == {"1"}
    older = list(csv.DictReader(io.StringIO(blocks_csv(OLDER))))
    assert [row["state"] for row in older] == [state for state, _ in TOLD["runs"]] and not any(
        r["owner"] for r in older
    )
    assert blocks_csv({}) == ""
    evil = blocks_csv({"runs": [["live", 1]], "owners": [["=cmd()", 1.0, 1]]})
    assert "'=cmd()" in evil


class Engine:
    """An engine that tells the same every time."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    def blocks(self) -> dict[str, Any]:
        return self._told

    def requests(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        """Nothing is open."""


class Still:
    """A live view of the bundled engine in which nothing moves."""

    spec, url = "t", "http://127.0.0.1:1"

    def __init__(self, told: dict[str, Any]) -> None:
        now = time.time()
        self.state = Watched("t", "t", "infradoc", "1", status="ok", tick_time=now, up=True, seen=now, looks=3)
        self._told, self._store = told, Store()

    @property
    def span(self) -> tuple[float, float]:
        return (self.now() - 100, self.now())

    def now(self) -> float:
        return time.time()

    @contextmanager
    def reading(self, at: float | None = None) -> Iterator[StoreFrame]:
        yield self._store.frame(self.now() if at is None else at)

    def marks(self) -> tuple[Mark, ...]:
        return ()

    def engine(self) -> Engine:
        return Engine(self._told)


@pytest.mark.parametrize("no_colour", [False, True])
@pytest.mark.parametrize(
    ("lang", "titles"), [("en", ("state", "owner", "age")), ("zh", ("按状态", "按持有者", "按时长"))]
)
def test_the_key_cycles_the_views_and_the_export_has_the_owners(
    settle: Settle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str, titles: tuple[str, ...], no_colour: bool
) -> None:
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    app = DoctorApp([Still(TOLD)], lang=lang, export_dir=tmp_path)

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            panel = app.screen.query_one("#panel-5", Panel)
            for _ in range(500):
                await settle(pilot)
                if "!" in panel.text:
                    break
                await asyncio.sleep(0.01)
            seen = []
            for title in (*titles, titles[0]):
                assert title in str(panel.border_title)
                seen.append(panel.text.split("\n")[0].strip())
                await pilot.press("o")
                await settle(pilot)
            assert seen[0] == seen[3] == "LLLLLSS··cr!" and seen[2] == "4440088··:-!"
            assert seen[1].endswith("##··:-!") and seen[1][:5].isalpha()
            await pilot.press("e")
            for _ in range(500):
                await pilot.pause(0.02)
                if list(tmp_path.glob("*.blocks.csv")):
                    break

    asyncio.run(run())
    (blocks,) = tmp_path.glob("*.blocks.csv")
    assert "req-a" in blocks.read_text() and blocks.with_name(blocks.name.replace(".blocks", "")).exists()


def test_a_view_of_an_older_engine_stays_by_state_on_the_screen(settle: Settle) -> None:
    app = DoctorApp([Still(OLDER)])

    async def run() -> None:
        async with app.run_test(size=(160, 50)) as pilot:
            panel = app.screen.query_one("#panel-5", Panel)
            await pilot.press("o")
            for _ in range(500):
                await settle(pilot)
                if "does not tell owners" in panel.text:
                    break
                await asyncio.sleep(0.01)
            assert panel.text.startswith("LLLLLSS··cr!")

    asyncio.run(run())
