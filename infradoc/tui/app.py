"""The application: targets, time, themes, export, repairs. Screens ask it; it asks the fleet."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widgets import Input

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.fleet.model import View, Watched
from infradoc.fleet.repair import Options
from infradoc.fleet.replaying import ReplayView
from infradoc.tui import export
from infradoc.tui.clock import Clock
from infradoc.tui.keys import help_keys
from infradoc.tui.messages import RepairMoved, Told
from infradoc.tui.paint import Palette, one_line, palette_of
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
_FRAMES = 4  # steps a second while a recording plays


class DoctorApp(App[None]):
    """`infradoc tui`."""

    CSS_PATH = "app.tcss"
    TITLE = "infradoc"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit_safely", "Quit"),
        Binding("ctrl+q", "quit_safely", "Quit", show=False, priority=True),
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
            self.set_interval(1 / _FRAMES, self._play_on)
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
            return bool(self.clock.replays) and not isinstance(self.focused, Input)
        return True

    def action_pause(self) -> None:
        """Hold time, and let it go on."""
        self.clock.toggle(self.views)
        self.kick()

    def action_step(self, seconds: int) -> None:
        """Move through the recording."""
        self.clock.step(float(seconds))
        self.kick()

    def action_seek_end(self, last: bool) -> None:
        """To the start or the end of the recording."""
        self.clock.seek_end(last)
        self.kick()

    def action_play(self) -> None:
        """Let the recording run, or stop it."""
        self.clock.play()
        self.kick()

    def action_speed(self) -> None:
        """1x or 10x."""
        self.clock.speed = 1 if self.clock.speed == 10 else 10
        self.kick()

    def _play_on(self) -> None:
        if self.clock.advance(1 / _FRAMES):
            self.kick()

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

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette."""
        yield from super().get_system_commands(screen)
        for word, action in (
            ("k_pause", self.action_pause),
            ("k_export", self.action_export),
            ("k_help", self.action_help),
        ):
            yield SystemCommand(self.say[word], f"infradoc: {self.say[word]}", action)

    def action_export(self) -> None:
        """Write what is shown as SVG and its figures as CSV."""
        screen = self.screen
        if not isinstance(screen, DoctorScreen):
            return
        svg, folder = self.export_screenshot(title="infradoc"), self._export_dir

        def job() -> None:
            try:
                name, text, blocks = exported(screen)
                files = ", ".join(str(path) for path in export.write(folder, name, svg, text, blocks))
                post(self, Told(self.say["exported"].format(files=files)))
            except InfradocError as error:
                post(self, Told(self.say["not_exported"].format(why=error), "error"))

        spawn(job, "export")

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
        if isinstance(screen, FindingScreen) and screen.view.spec == message.spec:
            screen.show_progress()
            if run.ended:
                screen.action_plan()
        elif run.ended:
            self.tell(f"{message.spec}: {run.lines[-1] if run.lines else ''}")
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


def exported(screen: DoctorScreen) -> tuple[str, str, str]:
    """A name, the figures of a screen, its map of blocks or "". Raises InfradocError when there are none yet."""
    if isinstance(screen, FleetScreen):
        return "fleet", export.fleet_csv(screen.rows), ""
    if isinstance(screen, TargetScreen) and screen.painted is not None:
        shown = screen.painted
        figures = export.series_csv(shown.frame, shown.marks)
        return f"target-{shown.state.name}", figures, export.blocks_csv(shown.blocks)
    if isinstance(screen, FindingScreen) and screen.finding is not None:
        return f"finding-{screen.finding_id}", export.finding_csv(screen.finding), ""
    raise InfradocError("There is nothing to export yet.")
