"""What all screens share: data comes from a worker, one job at a time, and a terminal may be too small."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.tui.messages import Done, Failed
from infradoc.tui.paint import one_line
from infradoc.tui.threads import post, spawn
from infradoc.tui.widgets.bars import KeyBar, TopBar

if TYPE_CHECKING:
    from infradoc.tui.app import DoctorApp

SMALLEST = (40, 10)
Job = Callable[[], Any]


class DoctorScreen(Screen[None]):
    """A screen that is filled by jobs. A job runs in a thread and touches no widget."""

    ALLOW_IN_MAXIMIZED_VIEW = "#top, #stage, #keys"
    KEYS: tuple[tuple[str, str, str], ...] = ()  # (key, word, action) of the bar below and of the palette
    spec: str | None = None  # the target that is shown, if it is one

    def __init__(self) -> None:
        super().__init__()
        self._busy = False
        self._again = False

    @property
    def doctor(self) -> DoctorApp:
        """The application."""
        from infradoc.tui.app import DoctorApp

        assert isinstance(self.app, DoctorApp)
        return self.app

    @property
    def settled(self) -> bool:
        """Whether what is shown is what was asked for last."""
        return not self._busy and not self._again

    def compose(self) -> ComposeResult:
        """The bars around the body."""
        say = self.doctor.say
        yield TopBar()
        yield from self.body()
        yield Static("", id="stage", markup=False)
        replays = self.doctor.clock.replays
        yield KeyBar([(key, say[word]) for key, word, _ in self.KEYS if word != "k_step" or replays])
        yield Static(say["small"], id="small", markup=False)

    def body(self) -> ComposeResult:
        """What stands between the bars."""
        yield from ()

    def on_mount(self) -> None:
        """Look at the data at once, then once a period."""
        self.kick()
        self.show_stage()
        self.set_interval(self.doctor.refresh_seconds, self.tick)

    def show_stage(self) -> None:
        """What a fix under way waits for, in sight whatever is scrolled; no line without one."""
        bar, busy = self.query_one("#stage", Static), self.doctor.repairs.stage_line(self.doctor.say, self.spec)
        text = busy or self.advice()
        bar.display = bool(text)
        bar.set_class(bool(busy), "-busy")
        if text:
            bar.update(Text(one_line(text), no_wrap=True, overflow="ellipsis"))

    def say_top(self, left: str, right: str) -> None:
        """What stands at both ends of the bar above; the left end also where the terminal is too small for more."""
        self.query_one(TopBar).say(left, right)
        self.query_one("#small", Static).update(Text(f"{self.doctor.say['small']}\n{one_line(left)}"))

    def advice(self) -> str:
        """What stands in the line above the keys while no fix is under way."""
        return ""

    def tick(self) -> None:
        """The clock's beat: nothing to do on a screen that is covered, or while time stands still."""
        if self.is_active:
            self.show_stage()
        if self.is_active and not self.doctor.is_paused:
            self.kick()

    def kick(self) -> None:
        """Ask for fresh data; while a job runs, once more after it."""
        if self._busy:
            self._again = True
            return
        job = self.job()
        if job is None:
            return
        self._busy = True
        spawn(lambda: self._work(job), "data")

    def job(self) -> Job | None:
        """What to compute, with all that it needs; made on the UI thread. None: nothing now."""
        return None

    def apply(self, result: Any) -> None:
        """Show what the job gave."""

    def _work(self, job: Job) -> None:
        try:
            post(self, Done(job()))
        except InfradocError as error:
            post(self, Failed(in_language(str(error), self.doctor.lang)))
        except Exception as error:  # a fault of drawing must not end the watch; it is told in a note
            post(self, Failed(self.doctor.say["trouble"].format(text=f"{type(error).__name__}: {error}")))

    def on_done(self, message: Done) -> None:
        """A job is over."""
        self.apply(message.result)
        self._finish()

    def on_failed(self, message: Failed) -> None:
        """A job failed: say it once, go on."""
        self.doctor.tell(message.text, "error")
        self._finish()

    def _finish(self) -> None:
        self._busy = False
        if self._again:
            self._again = False
            self.kick()

    def on_resize(self, event: events.Resize) -> None:
        """Below the smallest size one sentence says so; nothing of the state is lost."""
        self.set_class(event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1], "tiny")
        self.call_after_refresh(self.kick)

    def on_screen_resume(self) -> None:
        """It is on top again."""
        self.kick()
        self.show_stage()
