"""One target: its findings, and up to eight panels over time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ItemGrid, VerticalScroll
from textual.strip import Strip
from textual.widgets import OptionList

from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.fleet.engine_view import EngineView
from infradoc.fleet.frozen import Frozen, freeze
from infradoc.fleet.model import Mark, View, Watched
from infradoc.tui import paint
from infradoc.tui.downsample import ColumnCache
from infradoc.tui.finding_text import checked_text, marks_text
from infradoc.tui.messages import EngineAnswered
from infradoc.tui.panels import BY_KEY, PANELS
from infradoc.tui.panels.context import BLOCK_VIEWS, NAMES, BlockView, Context, EngineTold
from infradoc.tui.screens.base import DoctorScreen, Job
from infradoc.tui.screens.dialogs import Reading
from infradoc.tui.screens.finding import FindingScreen
from infradoc.tui.table import Row, status_text
from infradoc.tui.threads import post, spawn
from infradoc.tui.widgets.findings import FindingList
from infradoc.tui.widgets.panel import Panel

_ENGINE_SECONDS = 2.0
_VIEW_WORDS: Mapping[BlockView, str] = {"state": "by_state", "owner": "by_owner", "age": "by_age"}
_NARROWEST, _LOWEST, _AROUND = 56, 8, 6  # cells: a panel's least width and height, bars and findings around


@dataclass(frozen=True, slots=True)
class Painted:
    """What a job gives: the state, the moment, and rows by panel. The rest is kept for an export."""

    state: Watched
    now: float
    rows: Mapping[str, list[Strip]]
    frame: Frozen
    marks: tuple[Mark, ...]
    blocks: Mapping[str, Any]


class TargetScreen(DoctorScreen):
    """Panels are painted in a worker for the size they have; the UI thread only shows the rows."""

    KEYS = (
        ("Esc", "k_back", "back"),
        ("1-8", "k_panel", ""),
        ("m", "k_max", "maximise"),
        ("f", "k_findings", "findings"),
        ("p", "k_pause", "app.pause"),
        ("←→", "k_step", ""),
        ("l", "k_marks", "marks"),
        ("c", "k_checked", "checked"),
        ("e", "k_export", "app.export"),
        ("o", "k_blocks", "block_view"),
        ("?", "k_help", "app.help"),
        ("q", "k_quit", "app.quit_safely"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("m", "maximise", "Maximise"),
        Binding("f", "findings", "Findings"),
        Binding("c", "checked", "Checked"),
        Binding("l", "marks", "What happened"),
        Binding("o", "block_view", "Blocks by state, owner, age", show=False),
        *(Binding(panel.key, f"panel('{panel.key}')", f"Panel {panel.key}", show=False) for panel in PANELS),
    ]

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view, self.spec = view, view.spec
        self.painted: Painted | None = None
        self._cache = ColumnCache()
        self._told = EngineTold()
        self._block_view: BlockView = "state"
        self._asking = False
        self._client: EngineView | None = None
        self._room = 0

    def body(self) -> ComposeResult:
        """The findings, then the panels."""
        say = self.doctor.say
        yield FindingList(say["findings"])
        with VerticalScroll(id="panels", can_focus=False), ItemGrid(id="grid", min_column_width=_NARROWEST):
            for panel in PANELS:
                yield Panel(panel.key, say[panel.title])

    def on_mount(self) -> None:
        """Ask the engine beside the data."""
        super().on_mount()
        self.ask_engine()
        self.set_interval(_ENGINE_SECONDS, self.ask_engine)
        self.set_focus(self.query_one("#panel-1"))

    def on_resize(self, event: events.Resize) -> None:
        """As many panels beside each other as are readable, high enough to fill the screen."""
        super().on_resize(event)
        self.lay_out()

    def on_panel_moved(self) -> None:
        """Paint for the room that there is now."""
        self.kick()

    def lay_out(self) -> None:
        """Height of a row of panels: they share the room, but none is lower than `_LOWEST`."""
        shown = max(1, sum(1 for panel in self.panels if panel.display))
        columns = max(1, min(shown, self.size.width // _NARROWEST))
        rows = -(-shown // columns)
        room = self.query_one("#panels").size.height or self.size.height - _AROUND
        each, more = divmod(room, rows)
        heights = [each + (row < more) for row in range(rows)] if each >= _LOWEST else [_LOWEST]
        self.query_one("#grid").styles.grid_rows = " ".join(map(str, heights))

    # --- data --------

    @property
    def panels(self) -> list[Panel]:
        """All panels in order."""
        return list(self.query(Panel))

    def job(self) -> Job:
        """Paint the panels that are to be seen."""
        rooms = {panel.key: panel.room for panel in self.panels if panel.display and panel.room[0] > 0}
        return partial(self._paint, rooms, self.doctor.palette(), self._told, self._block_view)

    def _paint(
        self, rooms: Mapping[str, tuple[int, int]], palette: paint.Palette, told: EngineTold, block_view: BlockView
    ) -> Painted:
        doctor, view = self.doctor, self.view
        now, state = doctor.moment(view), doctor.state_of(view)
        with view.reading(now) as frame:
            frozen = freeze(frame, NAMES)
        begin, end = view.span
        end = now if view.url else end
        marks = tuple(mark for mark in view.marks() if mark.time <= now)
        context = Context(frozen, begin, end, marks, self._cache, palette, doctor.say, told, block_view=block_view)
        rows = {key: BY_KEY[key].paint(context.sized(*room)) for key, room in rooms.items()}
        return Painted(state, now, rows, frozen, marks, told.blocks)

    def apply(self, result: Any) -> None:
        """Show the rows and the findings."""
        painted: Painted = result
        self.painted = painted
        for panel in self.panels:
            if panel.key in painted.rows:
                panel.show(painted.rows[panel.key])
        if self.query_one("#panels").size.height != self._room:  # the list of findings grew or shrank
            self._room = self.query_one("#panels").size.height
            self.lay_out()
            self.call_after_refresh(self.kick)
        self._name_block_view(bool(painted.blocks.get("runs")))
        self.query_one(FindingList).show(painted.state, self.doctor.say)
        state, say = painted.state, self.doctor.say
        what = " ".join(part for part in (state.name, state.system or "", state.version or "") if part)
        status = status_text(Row(state.spec, state, painted.now), say)
        self.say_top(f"{what}  {status}", self.doctor.time_text(self.view))

    def _name_block_view(self, has_map: bool) -> None:
        say, panel = self.doctor.say, self.query_one("#panel-5", Panel)
        title = f"5 {say['blocks']}" + (f" {say[_VIEW_WORDS[self._block_view]]}" if has_map else "")
        if panel.border_title != title:
            panel.border_title = title

    # --- the engine's own pages --------

    def ask_engine(self) -> None:
        """Ask for blocks and requests while one of their panels is to be seen."""
        wanted = any(self.query_one(f"#panel-{key}").display for key in ("5", "7"))
        if self._asking or not wanted or not self.is_active or self.doctor.is_paused:
            return
        self._asking = True
        spawn(self._ask, "engine")

    def _ask(self) -> None:
        say, state = self.doctor.say, self.view.state
        told = EngineTold(why=say["recording"])
        if self.view.url and state.system != "infradoc":
            told = EngineTold(why=say["not_engine"] if state.system else say["asking"])
        elif self.view.url:
            try:
                self._client = self._client or self.view.engine()
                assert self._client is not None
                told = EngineTold(self._client.blocks(), self._client.requests(), time.time())
            except InfradocError as error:
                told = EngineTold(why=in_language(str(error), self.doctor.lang))
        post(self, EngineAnswered(told))

    def on_engine_answered(self, message: EngineAnswered) -> None:
        """Keep the answer for the next painting."""
        fresh = message.told != self._told
        self._told, self._asking = message.told, False
        if fresh:
            self.kick()

    def on_unmount(self) -> None:
        """Close the connection of the engine's pages."""
        if self._client is not None:
            self._client.close()

    # --- keys --------

    def action_panel(self, key: str) -> None:
        """Show a panel and go to it; on the one that has the focus: hide it."""
        panel = self.query_one(f"#panel-{key}", Panel)
        if panel.display and panel.has_focus:
            self.minimize()
            panel.display = False
            following = next((one for one in self.panels if one.display), None)
            if following is not None:
                self.set_focus(following)
        else:
            if self.maximized is not None and self.maximized is not panel:
                self.minimize()
            panel.display = True
            self.set_focus(panel)
            panel.scroll_visible(animate=False)
        self.lay_out()
        self.call_after_refresh(self.kick)

    def action_maximise(self) -> None:
        """The panel with the focus alone on the screen, and back."""
        if self.maximized is not None:
            self.minimize()
        elif isinstance(self.focused, Panel):
            self.maximize(self.focused, container=False)
        self.call_after_refresh(self.kick)

    def action_block_view(self) -> None:
        """The map of KV blocks by state, by owner, by age, and by state again."""
        self._block_view = BLOCK_VIEWS[(BLOCK_VIEWS.index(self._block_view) + 1) % len(BLOCK_VIEWS)]
        self.kick()

    def action_checked(self) -> None:
        """What was checked, and what this server does not show."""
        if self.painted is not None:
            text = checked_text(self.painted.state, self.doctor.say)
            self.app.push_screen(Reading(text))

    def action_marks(self) -> None:
        """What the letters on the time axis stand for, the newest first."""
        if self.painted is not None:
            zone = None if self.view.url else UTC  # as in the bar above: a recording is of somewhere else
            shown, doctor = self.painted, self.doctor
            self.app.push_screen(Reading(marks_text(shown.marks, shown.now, zone, doctor.say, doctor.lang)))

    def action_findings(self) -> None:
        """Go to the list of findings."""
        self.set_focus(self.query_one("#findings"))

    def action_back(self) -> None:
        """To all targets; a maximised panel goes back first."""
        if self.maximized is not None:
            self.action_maximise()
        else:
            self.doctor.leave()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter on a finding opens it."""
        if event.option_id is not None:
            self.app.push_screen(FindingScreen(self.view, event.option_id))
