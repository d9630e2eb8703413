"""Every key, pressed on the real application over a recording."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.widgets import DataTable, Input, OptionList, Static

from infradoc.tui.app import DoctorApp
from infradoc.tui.screens.dialogs import Help, Reading
from infradoc.tui.screens.finding import FindingScreen
from infradoc.tui.screens.fleet import FleetScreen
from infradoc.tui.screens.target import TargetScreen
from infradoc.tui.widgets.bars import TopBar
from infradoc.tui.widgets.panel import Panel

Make = Callable[..., DoctorApp]
Settle = Callable[[Any], Awaitable[None]]
MANY = ("vllm-05", "vllm-07", "vllm-01")


def top(app: DoctorApp) -> str:
    return str(app.screen.query_one(TopBar).render())


def drive(app: DoctorApp, steps: Callable[[Any], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(pilot)

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def test_worst_first_enter_opens_escape_goes_back(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        table = app.screen.query_one(DataTable)
        names = [str(table.get_row_at(row)[0]).strip() for row in range(3)]
        assert names[-1] == "vllm-01" and set(names[:2]) == {"vllm-05", "vllm-07"}
        await pilot.press("down")
        chosen = app.screen.chosen
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, TargetScreen) and app.screen.view.spec == chosen
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen) and app.screen.chosen == chosen
        await pilot.press("escape")
        assert isinstance(app.screen, FleetScreen)

    drive(app, steps)


def test_the_cursor_stays_on_its_target_when_rows_change_places(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        while not str(screen.chosen).endswith("vllm-05"):
            await pilot.press("down")
        before = screen.table.cursor_row
        await pilot.press("home")  # nothing was found yet: all are healthy or unknown, in another order
        await settle(pilot)
        assert str(screen.chosen).endswith("vllm-05")
        await pilot.press("end")
        await settle(pilot)
        assert str(screen.chosen).endswith("vllm-05") and screen.table.cursor_row == before

    drive(app, steps)


def test_filter(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        await pilot.press("slash", *"05")
        assert screen.table.row_count == 1 and "/05" in top(app)
        await pilot.press("enter")
        assert screen.table.has_focus and screen.table.row_count == 1 and not screen.query_one(Input).display
        await pilot.press("slash", *"zz")
        assert screen.table.row_count == 0 and "No target matches 'zz'" in str(screen.query_one("#detail").render())
        await pilot.press("escape")
        assert screen.table.row_count == 3 and screen.table.has_focus

    drive(app, steps)


def test_digits_show_go_to_and_hide(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        for key in "12345678":
            panel = app.screen.query_one(f"#panel-{key}", Panel)
            if not panel.has_focus:
                await pilot.press(key)
            assert panel.has_focus and panel.display and panel.text.strip()
            await pilot.press(key)
            assert not panel.display and isinstance(app.focused, Panel)
            await pilot.press(key)
            await settle(pilot)
            assert panel.display and panel.has_focus and panel.text.strip()

    drive(app, steps)


def test_maximise_and_back(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("4")
        panel = app.screen.query_one("#panel-4", Panel)
        small = panel.room
        await pilot.press("m")
        await settle(pilot)
        assert app.screen.maximized is panel and panel.room[0] > small[0] and panel.room[1] > small[1]
        assert len(panel.text.split("\n")) == panel.room[1]
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen.maximized is None and panel.room == small and isinstance(app.screen, TargetScreen)

    drive(app, steps)


def test_findings_list_opens_the_finding_and_its_runbook(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("f")
        assert isinstance(app.focused, OptionList)
        await pilot.press("enter")
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, FindingScreen) and screen.finding_id == "kv-thrashing-preemption"
        text = str(screen.query_one("#finding").render())
        for part in ("Cause", "Evidence", "llm_preemptions_total", "explains", "queue-saturation", "Wrong if"):
            assert part in text
        plan = str(screen.query_one("#plan").render())
        assert "max_num_seqs" in plan and "A recording cannot be changed." in plan
        assert screen.query_one("#book").display
        await pilot.press("b")
        assert not screen.query_one("#book").display and screen.query_one("#left").display
        await pilot.press("b")
        assert screen.query_one("#book").display
        await pilot.press("a", "u", "r")
        assert isinstance(app.screen, FindingScreen)  # no question: a recording cannot be changed
        await pilot.press("escape")
        assert isinstance(app.screen, TargetScreen)

    drive(app, steps)


def test_on_a_narrow_screen_the_runbook_takes_the_place_of_the_finding(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("f", "enter")
        await settle(pilot)
        assert not app.screen.query_one("#book").display
        await pilot.press("b")
        assert app.screen.query_one("#book").display and not app.screen.query_one("#left").display
        await pilot.press("b")
        assert app.screen.query_one("#left").display

    drive(app, steps, (80, 24))


def test_time_goes_where_the_keys_say(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        (replay,) = app.clock.replays
        first, last = replay.span
        moves = {"left": last - 1, "shift+left": last - 11, "right": last - 10, "shift+right": last, "home": first}
        for key, moment in moves.items():
            await pilot.press(key)
            assert replay.now() == pytest.approx(moment), key
        await settle(pilot)
        assert "+0 / " in top(app) and not app.screen.painted.state.findings
        await pilot.press("end")
        await settle(pilot)
        assert app.screen.painted.state.findings and replay.now() == last

    drive(app, steps)


def test_play_runs_at_the_speed_asked_for_and_stops(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        (replay,) = app.clock.replays
        await pilot.press("space")
        assert app.clock.playing and replay.now() < replay.span[0] + 5  # from the end it starts over
        await pilot.press("x")
        assert app.clock.speed == 10
        await settle(pilot)
        assert "PLAYING 10x" in top(app)
        before = replay.now()
        app.clock.advance(1.0)
        assert replay.now() >= before + 10
        await pilot.press("x", "space")
        assert app.clock.speed == 1 and not app.clock.playing
        app.clock.playing = True
        replay.seek(replay.span[1] - 1)
        app.clock.advance(5.0)
        assert not app.clock.playing and replay.now() == replay.span[1]

    drive(app, steps)


def test_keys_of_time_belong_to_the_filter_while_somebody_types(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        moment = app.clock.replays[0].now()
        await pilot.press("slash", "a", "b", "left", "x", "space", "home", "y")
        assert app.screen.query_one(Input).value == "yax b"
        assert app.clock.replays[0].now() == moment and not app.clock.playing

    drive(app, steps)


def test_pause_help_theme_palette_quit(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        app.clock.playing = True
        await pilot.press("p")
        assert not app.clock.playing
        await pilot.press("p")
        assert not app.clock.playing  # at the end there is nothing to go on with
        await pilot.press("left", "p")
        assert app.clock.playing
        await pilot.press("p", "question_mark")
        assert isinstance(app.screen, Help)
        await pilot.press("escape")
        assert isinstance(app.screen, TargetScreen)
        dark = app.theme
        await pilot.press("t")
        assert app.theme != dark
        await settle(pilot)
        await pilot.press("ctrl+p")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press("escape")
        await pilot.press("q")

    drive(app, steps)
    assert app.return_code == 0


@pytest.mark.parametrize("keys", [("escape",), (), ("f", "enter")], ids=["fleet", "target", "finding"])
def test_export_writes_what_is_shown(make_app: Make, settle: Settle, tmp_path: Path, keys: tuple[str, ...]) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        await pilot.press("e", "e")
        await until(lambda: len(list(tmp_path.glob("*.csv"))) == 2)

    drive(app, steps)
    svgs, tables = sorted(tmp_path.glob("*.svg")), sorted(tmp_path.glob("*.csv"))
    assert len(svgs) == len(tables) == 2  # the second never over the first
    assert svgs[0].read_text().startswith("<svg")
    rows = list(csv.reader(tables[0].open()))
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1
    assert "'" not in {cell for row in rows for cell in row}  # nothing is nothing, no text to be guarded
    if rows[0][0] == "time":
        times = [float(row[0]) for row in rows[1:]]
        gaps = sorted(later - earlier for earlier, later in pairwise(times))
        assert gaps[len(gaps) // 2] > 0.5  # one row a look, not one a source


def test_export_into_a_folder_that_is_not_there_is_told(make_app: Make, settle: Settle, tmp_path: Path) -> None:
    app = make_app()
    app._export_dir = tmp_path / "no" / "such"

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("e")
        await until(lambda: any("cannot be written" in str(note.message) for note in app._notifications))

    drive(app, steps)


def test_j_k_g_move_as_the_arrows_do(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        table = app.screen.query_one(DataTable)
        await pilot.press("j", "j")
        assert table.cursor_row == 2
        await pilot.press("k")
        assert table.cursor_row == 1
        await pilot.press("g")
        assert table.cursor_row == 0
        await pilot.press("G")
        assert table.cursor_row == 2
        await pilot.press("g", "enter")
        await settle(pilot)
        panels = app.screen.query_one("#panels")
        await pilot.press("j", "j", "j")  # the panel shows all of itself: what it stands in moves
        await pilot.wait_for_scheduled_animations()
        assert panels.scroll_y > 0
        await pilot.press("f", "j", "enter")
        await settle(pilot)
        assert isinstance(app.screen, FindingScreen) and app.screen.finding_id == "prefill-compute-bound"
        left = app.screen.query_one("#left")
        await pilot.press("j", "j", "j")
        await pilot.wait_for_scheduled_animations()
        assert left.scroll_y > 0
        await pilot.press("g")
        await pilot.wait_for_scheduled_animations()
        assert left.scroll_y == 0

    drive(app, steps, (80, 24))


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("colon",)], ids=["screen", "help", "palette"])
def test_ctrl_c_says_how_to_leave_and_twice_leaves(make_app: Make, settle: Settle, keys: tuple[str, ...]) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press(*keys)
        await pilot.press("ctrl+c")
        assert any("q quits" in str(note.message) for note in app._notifications) and app._exit is False
        app._interrupted -= 60  # a minute later it is the first one again
        await pilot.press("ctrl+c")
        assert app._exit is False
        await pilot.press("ctrl+c")
        assert app._exit is True

    drive(app, steps)
    assert app.return_code == 0


def test_the_palette_has_what_the_screen_can_do_in_its_language(make_app: Make, settle: Settle) -> None:
    app = make_app(lang="zh")

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("colon")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press("escape")
        names = {command.title: command for command in app.get_system_commands(app.screen)}
        assert {"最大化", "发现", "检查清单", "退出", "全部主题"} <= set(names)
        assert all(re.search(r"[\u4e00-\u9fff]", f"{one.title}{one.help}") for one in names.values())
        names["最大化"].callback()
        await settle(pilot)
        assert app.screen.maximized is not None
        names["全部主题"].callback()
        await until(lambda: isinstance(app.screen, CommandPalette))

    drive(app, steps)


def test_all_evidence_on_demand(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("f", "enter")
        await settle(pilot)
        finding = app.screen.query_one("#finding")
        folded = str(finding.render())
        assert folded.count("• ") == 4 and "+3 more (v shows them)" in folded
        await pilot.press("v")
        assert str(finding.render()).count("• ") == 7
        await pilot.press("v")
        assert str(finding.render()) == folded

    drive(app, steps)


def test_what_was_checked_on_demand(make_app: Make, settle: Settle) -> None:
    app = make_app("vllm-01")

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        (line,) = [str(option.prompt) for option in app.screen.query_one(OptionList).options]
        assert re.match(r"nothing found: \d\d checked, \d+ not visible \(c lists them\)", line)
        await pilot.press("c")
        text = str(app.screen.query(Static)[0].render())
        assert isinstance(app.screen, Reading) and "kv-thrashing-preemption" in text and "gpu_utilization_ratio" in text
        await pilot.press("escape")
        assert isinstance(app.screen, TargetScreen)

    drive(app, steps)


def test_the_bars_stay_while_a_panel_is_maximised(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("2", "m", "left")
        await settle(pilot)
        shown = ["".join(piece.text for piece in row) for row in app.screen._compositor.render_strips()]
        assert "vllm-05" in shown[0] and "+104 / 105 s" in shown[0] and "Quit" in shown[-1]

    drive(app, steps)


def test_the_table_shows_queue_wait_and_p99_at_80_columns(make_app: Make, settle: Settle) -> None:
    app = make_app(*MANY)

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        heads = [str(column.label).strip() for column in app.screen.query_one(DataTable).columns.values()]
        assert heads == ["target", "status", "run", "wait", "est.wait", "KV", "TTFT P99", "top finding"]
        shown = ["".join(piece.text for piece in row) for row in app.screen._compositor.render_strips()]
        assert any("vllm-05" in row and "68.6 s" in row and "Running reque" in row for row in shown)
        await pilot.resize_terminal(140, 30)
        await settle(pilot)
        heads = [str(column.label).strip() for column in app.screen.query_one(DataTable).columns.values()]
        assert heads[-3:] == ["ITL P99", "top finding", "age"]

    drive(app, steps, (80, 24))


def test_what_happened_in_words(make_app: Make, settle: Settle) -> None:
    app = make_app()

    async def steps(pilot: Any) -> None:
        await settle(pilot)
        await pilot.press("l")
        text = str(app.screen.query(Static)[0].render())
        assert isinstance(app.screen, Reading)
        assert re.search(r"\d\d:\d\d:\d\d +-\d+ s +F finding  Running requests keep losing their KV blocks", text)
        await pilot.press("escape", "home")
        await settle(pilot)
        await pilot.press("l")
        assert "nothing since the watch began" in str(app.screen.query(Static)[0].render())

    drive(app, steps)
