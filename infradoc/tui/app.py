"""The application: targets, time, themes, export, repairs. Screens ask it; it asks the fleet."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.theme import ThemeProvider
from textual.widgets import Input

from infradoc.config import Config
from infradoc.fleet.model import View, Watched
from infradoc.fleet.repair import Options
from infradoc.fleet.replaying import ReplayView
from infradoc.tui.clock import Clock
from infradoc.tui.common_keys import FRAMES, TimeKeys, move
from infradoc.tui.exported import written
from infradoc.tui.keys import help_keys
from infradoc.tui.messages import RepairMoved, Told
from infradoc.tui.paint import Palette, one_line, palette_of
from infradoc.tui.palette import Commands
from infradoc.tui.repairs import Repairs
from infradoc.tui.screens.base import DoctorScreen
from infradoc.tui.screens.dialogs import Confirm, Help
from infradoc.tui.screens.finding import FindingScreen
from infradoc.tui.screens.fleet import FleetScreen
from infradoc.tui.screens.target import TargetScreen
from infradoc.tui.terminal import SurvivingDriver
from infradoc.tui.threads import post, spawn
from infradoc.tui.words import words

_THEMES = ("textual-dark", "textual-light")
_TWICE_SECONDS = 5.0  # between two Ctrl-C that leave


class DoctorApp(TimeKeys, App[None]):
    """`infradoc tui`."""

    CSS_PATH = "app.tcss"
    TITLE = "infradoc"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit_safely", "Quit"),
        Binding("ctrl+q", "quit_safely", "Quit", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True),
        Binding("colon", "command_palette", "Commands", show=False),
        Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True),
        Binding("j", "move('down')", "Down", show=False),
        Binding("k", "move('up')", "Up", show=False),
        Binding("g", "move('home')", "Top", show=False),
        Binding("G", "move('end')", "Bottom", show=False),
        Binding("question_mark", "help", "Help"),
        Binding("p", "pause", "Pause"),
        Binding("t", "theme", "Theme"),
        Binding("e", "export", "Export"),
        Binding("left", "step(-1)", "Back a second", show=False, priority=True),
        Binding("right", "step(1)", "Forward a second", show=False, priority=True),
        Binding("shift+left", "step(-10)", "Back ten", show=False, priority=True),
        Binding("shift+right", "step(10)", "Forward ten", show=False, priority=True),
        Binding("home", "seek_end(False)", "Start", show=False, priority=True),
        Binding("end", "seek_end(True)", "End", show=False, priority=True),
        Binding("space", "play", "Play", show=False, priority=True),
        Binding("x", "speed", "Speed", show=False),
    ]

    def __init__(
        self,
        views: Sequence[View],
        config: Config | None = None,
        *,
        lang: str = "en",
        options: Options | None = None,
        export_dir: Path | None = None,
        refresh_seconds: float = 1.0,
        take_signals: bool = False,
    ) -> None:
        super().__init__()
        self.views = tuple(views)
        self.config = config or Config()
        self.lang, self.say = lang, words(lang)
        self.refresh_seconds = refresh_seconds
        self.clock = Clock([view for view in self.views if isinstance(view, ReplayView)])
        self.repairs = Repairs(self, self.config, lang, options or Options())
        self._export_dir = export_dir or Path()
        self._take_signals = take_signals  # a lost terminal and a kill take the same way out as `q`
        self._leaving = False
        self._interrupted = float("-inf")  # when Ctrl-C was pressed last, on the monotonic clock

    def get_driver_class(self) -> type[Driver]:
        """Textual's choice; on a real terminal one that outlives it."""
        chosen = super().get_driver_class()
        return SurvivingDriver if chosen is LinuxDriver else chosen

    def on_mount(self) -> None:
        """The targets are already watched; show them."""
        self.push_screen(FleetScreen())
        if len(self.views) == 1:
            self.push_screen(TargetScreen(self.views[0]))
        if self.clock.replays:
            self.set_interval(1 / FRAMES, self._play_on)
        if self._take_signals:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.stop_and_leave)

    # --- what screens ask --------

    def view(self, spec: str | None) -> View | None:
        """The view of that spec."""
        return next((view for view in self.views if view.spec == spec), None)

    def state_of(self, view: View) -> Watched:
        """The state to show: the newest, or that of the moment of the pause. For threads."""
        return self.clock.frozen(view) or view.state

    def moment(self, view: View) -> float:
        """The moment to show. For threads."""
        return self.clock.moment(view)

    @property
    def is_paused(self) -> bool:
        """Whether time stands still."""
        return self.clock.paused

    def palette(self) -> Palette:
        """Styles of the present theme."""
        return palette_of(self.theme_variables)

    def time_text(self, view: View | None = None) -> str:
        """The moment that is shown, and whether time stands still or a recording plays."""
        return self.clock.text(self.say, view or (self.views[0] if self.clock.replays and self.views else None))

    def tell(self, text: str, severity: str = "information") -> None:
        """A short note. Never read as markup."""
        self.notify(one_line(text), severity="error" if severity == "error" else "information", markup=False)

    def leave(self) -> None:
        """Back to the screen below."""
        if len(self.screen_stack) > 2:
            self.pop_screen()

    def kick(self) -> None:
        """Have the present screen ask for fresh data."""
        if isinstance(self.screen, DoctorScreen):
            self.screen.kick()

    # --- time --------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of time belong to recordings, and never to a field in which somebody types."""
        if action in ("step", "seek_end", "play", "speed"):
            return bool(self.clock.replays) and isinstance(self.screen, DoctorScreen) and not self._is_typing
        return True

    @property
    def _is_typing(self) -> bool:
        return isinstance(self.focused, Input)

    # --- small things --------

    def action_help(self) -> None:
        """All keys."""
        if not isinstance(self.screen, Help):
            self.push_screen(Help(help_keys(self.lang), self.say))

    def action_theme(self) -> None:
        """Dark or light; the palette (Ctrl+P) has all themes."""
        place = _THEMES.index(self.theme) if self.theme in _THEMES else -1
        self.theme = _THEMES[(place + 1) % len(_THEMES)]
        self.call_after_refresh(self.kick)

    def action_move(self, way: str) -> None:
        """j, k, g, G."""
        move(self.focused, way)

    def action_interrupt(self) -> None:
        """Ctrl-C: once it says how to leave, twice within a few seconds it leaves, as `q` does."""
        now, before = time.monotonic(), self._interrupted
        self._interrupted = now
        if now - before > _TWICE_SECONDS:
            self.tell(self.say["how_to_quit_fix" if self.repairs.under_way else "how_to_quit"])
        elif isinstance(self.screen, Confirm):  # asked already, or about something else that is then left as it is
            self.stop_and_leave()
        else:
            self.action_quit_safely()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: those of the screen below it, then those of all screens."""
        keys = screen.KEYS if isinstance(screen, DoctorScreen) else ()
        for key, word, action in (*keys, ("Ctrl+P", "k_themes", "app.change_theme")):
            if action:
                run = partial(self.call_later, self.run_action, action, screen)
                yield SystemCommand(self.say[word], self.say["key"].format(key=key), run)

    def action_command_palette(self) -> None:
        """`:` and Ctrl+P."""
        if not isinstance(self.screen, Commands):
            self.push_screen(Commands(self.say["commands"], self.say["no_command"]))

    def action_change_theme(self) -> None:
        """All themes."""
        self.push_screen(Commands(self.say["pick_theme"], self.say["no_command"], [ThemeProvider]))

    def action_export(self) -> None:
        """Write what is shown as SVG and its figures as CSV."""
        screen = self.screen
        if isinstance(screen, DoctorScreen):
            svg, folder = self.export_screenshot(title="infradoc"), self._export_dir
            spawn(lambda: post(self, written(screen, folder, svg)), "export")

    def on_told(self, message: Told) -> None:
        """Show a note of a thread."""
        self.tell(message.text, message.severity)

    # --- repairs ---

    def on_repair_moved(self, message: RepairMoved) -> None:
        """Keep what a repair said, and show it where it is looked at."""
        run = self.repairs.note(message)
        screen = self.screen
        if run is None:
            return
        if isinstance(screen, DoctorScreen):
            screen.show_stage()
        if isinstance(screen, FindingScreen) and screen.view.spec == message.spec:
            screen.show_progress()
            if run.ended:
                screen.action_plan()
        if run.ended:
            self.tell(f"{message.spec}: {run.verdict or (run.lines[-1] if run.lines else '')}")
        if self._leaving and not self.repairs.under_way:
            self.exit()

    # --- the end --------

    def action_quit_safely(self) -> None:
        """Quit; a fix under way is taken back first, after a question."""
        if not self.repairs.under_way:
            self.exit()
            return

        def answer(yes: bool | None) -> None:
            if yes:
                self.stop_and_leave()

        if not isinstance(self.screen, Confirm):
            self.push_screen(Confirm(self.say["confirm_quit"], Text(), "quit", self.say), answer)

    def on_unmount(self) -> None:
        """However the screen went away: a fix under way takes its change back."""
        self.repairs.stop()

    def stop_and_leave(self) -> None:
        """End repairs, which take their changes back, then quit. Also what SIGTERM and a lost terminal do."""
        self._leaving = True
        self.repairs.stop()
        if not self.repairs.under_way:
            self.exit()
