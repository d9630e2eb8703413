"""Names and lines of others are shown as they are: no markup is read, no control character reaches the terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from infradoc.errors import InfradocError
from infradoc.fleet.model import Mark, Watched
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Store
from infradoc.tui.app import DoctorApp
from infradoc.tui.export import safe
from infradoc.tui.paint import broken, fitted, one_line, wrapped
from infradoc.tui.screens.finding import FindingScreen
from infradoc.tui.screens.target import TargetScreen

Settle = Callable[[Any], Awaitable[None]]
EVIL = "[red]m[/red] \x1b[31;1m\x1b]0;title\x07 [@click=app.quit]x[/] \u202e\r\n[/]"
SHOWN = "[red]m[/red] \\x1b[31;1m\\x1b]0;title\\x07 [@click=app.quit]x[/]"


def finding(text: str) -> dict[str, Any]:
    action = dict.fromkeys(("from", "to", "flag"), text) | {"knob": text, "change": "set", "live": False, "name": ""}
    return {
        "id": "queue-saturation",
        "severity": "critical",
        "confidence": 0.9,
        "role": "root",
        "title": text,
        "cause": text,
        "impact": text,
        "evidence": [{"text": text, "source": text, "signal": text, "value": 1.0, "unit": text, "weight": -1.0}],
        "actions": [action | {"risk": "reversible", "cost": text, "why": text}],
        "falsifier": text,
        "explains": [text],
        "playbook": "queue-saturation",
    }


class Engine:
    """An engine whose every word is hostile."""

    def blocks(self) -> dict[str, Any]:
        leaked = [{"block": 1, "owner": EVIL, "age_seconds": 5.0}, "nonsense"]
        owners = [[EVIL, 1.0, 6], ["y" * 9000, float("nan"), 2], "x"]
        return {"runs": [[EVIL, 3], ["live", 5], "x"], "ledger": {"live": 5}, "leaked": leaked, "owners": owners}

    def requests(self) -> list[dict[str, Any]]:
        lost = [{"reason": EVIL, "for_request": EVIL}]
        row = {"id": EVIL, "state": EVIL, "received": 1.0, "blocks": 2, "stages": {EVIL: 2.0}, "preemptions": lost}
        return [row, {"id": None, "state": None}]

    def close(self) -> None:
        """Nothing is open."""


class Still:
    """A view that stands still, in a state of the test's choice."""

    spec, url = "t", "http://127.0.0.1:1"
    findings = ()

    def __init__(self, state: Watched, engine: object | None = None) -> None:
        self.state, self._engine, self._store = state, engine, Store()

    @property
    def span(self) -> tuple[float, float]:
        return (self.now() - 100, self.now())

    def now(self) -> float:
        return time.time()

    @contextmanager
    def reading(self, at: float | None = None) -> Iterator[StoreFrame]:
        yield self._store.frame(self.now() if at is None else at)

    def marks(self) -> tuple[Mark, ...]:
        return (Mark(self.now() - 10, "finding", EVIL, EVIL, EVIL),)

    def engine(self) -> object | None:
        if self._engine is None:
            raise InfradocError(EVIL)
        return self._engine


def watched(**more: Any) -> Watched:
    now = time.time()
    return Watched("t", EVIL, EVIL, EVIL, tick_time=now, up=True, seen=now, looks=3, **more)


def shown(app: DoctorApp) -> str:
    """The characters of the screen, and a check that none is a control character."""
    lines = ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]
    text = "\n".join(lines)
    assert not [c for c in text if not c.isprintable() and c != "\n"], "a control character reached the screen"
    return text


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_hostile_texts_on_every_screen(settle: Settle, size: tuple[int, int]) -> None:
    hostile = watched(status="unhealthy", findings=(finding(EVIL),), error=EVIL)
    app = DoctorApp([Still(hostile), replace_spec(hostile)])

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            assert "[red]m[/red]" in shown(app)
            await pilot.press("enter")
            await settle(pilot)
            assert isinstance(app.screen, TargetScreen) and SHOWN in shown(app)
            await pilot.press("f", "enter")
            await settle(pilot)
            assert isinstance(app.screen, FindingScreen) and "[red]m[/red]" in shown(app)
            app.tell(EVIL, "error")
            await pilot.pause()
            shown(app)
            await pilot.press("question_mark")
            shown(app)

    asyncio.run(run())


def replace_spec(state: Watched) -> Still:
    other = Still(replace(state, spec="u"), Engine())
    other.spec = "u"
    return other


def test_a_hostile_engine(settle: Settle) -> None:
    hostile = replace(watched(status="ok"), system="infradoc")
    app = DoctorApp([Still(hostile, Engine())])

    async def run() -> None:
        async with app.run_test(size=(200, 60)) as pilot:
            for _ in range(100):
                await settle(pilot)
                if "nonsense" not in (text := shown(app)) and "live 5" in text:
                    break
                await asyncio.sleep(0.02)
            assert "live 5" in text and "???LLLLL" in text and "2x" not in text
            for title in ("by owner", "by age"):
                await pilot.press("o")
                await settle(pilot)
                assert title in shown(app)

    asyncio.run(run())


def test_a_dead_target_is_stale_with_its_age(settle: Settle) -> None:
    state = replace(watched(status="ok", error="no answer"), up=False, seen=time.time() - 12.5, name="dead")
    app = DoctorApp([Still(state), Still(replace(watched(status="ok"), spec="u", name="alive"))])
    app.views[1].spec = "u"

    async def run() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await settle(pilot)
            text = shown(app)
            assert "~ stale 12 s" in text or "~ stale 13 s" in text
            assert "no answer" in text

    asyncio.run(run())


def test_a_job_that_fails_is_told_and_the_screen_goes_on(settle: Settle) -> None:
    view = Still(watched(status="ok"))
    app = DoctorApp([view])

    async def run() -> None:
        async with app.run_test(size=(120, 30)) as pilot:
            await settle(pilot)
            del view.state
            app.kick()
            await settle(pilot)
            assert any("AttributeError" in str(note.message) for note in app._notifications)
            view.state = replace(watched(status="ok"), name="back again")
            app.kick()
            await settle(pilot)
            assert "back again" in shown(app)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "made"), [("=1+1", "'=1+1"), ("@x", "'@x"), ("-1 a", "'-1 a"), (-1.5, "-1.5"), (-2, "-2")]
)
def test_a_spreadsheet_computes_nothing(text: object, made: str) -> None:
    assert safe(text) == made


@pytest.mark.parametrize(
    ("text", "width", "made"),
    [("ab", 4, "ab  "), ("abcdef", 4, "abc…"), ("中文字", 4, "中 …"), ("中", 4, "中  "), ("x", 0, "")],
)
def test_cells_are_counted_not_characters(text: str, width: int, made: str) -> None:
    assert fitted(text, width) == made


def test_wrapping_breaks_between_words_and_inside_chinese() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("请求还不够", 4) == ["请求", "还不", "够"]
    assert wrapped("a\nb", 4) == ["a", "b"] and wrapped("abcdefgh", 3) == ["abc", "def", "gh"]


@given(st.text(alphabet="ab 中文，（）。1", max_size=120), st.integers(6, 30))
@example(" 。。。", 6)
def test_rows_of_chinese_fit_and_lose_nothing(line: str, width: int) -> None:
    rows = broken(Text(line, style="bold"), width).plain.split("\n")
    assert all(cell_len(row.rstrip(" ")) <= width for row in rows)
    assert "".join(rows).replace(" ", "") == line.replace(" ", "")


def test_chinese_is_broken_between_characters_and_never_before_a_full_stop() -> None:
    text = Text("KV 池（3,072 个 token）小于需要。", style="bold")
    assert broken(text, 16).plain.split("\n") == ["KV 池（3,072 个 ", "token）小于需", "要。"]


def test_rows_that_go_on_are_as_far_in_as_their_paragraph() -> None:
    rows = broken(Text("    why: one two three\n• four five six"), 14).plain.split("\n")
    assert rows == ["    why: one ", "    two three", "• four five ", "  six"]


def test_one_line() -> None:
    assert one_line("a\nb\x07\x1b[0m") == "a b\\x07\\x1b[0m"
