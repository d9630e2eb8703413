"""What keys do that every screen has: time, and moving about as j, k, g and G do elsewhere."""

from __future__ import annotations

from contextlib import suppress

from textual.actions import SkipAction
from textual.widget import Widget

from infradoc.fleet.model import View
from infradoc.tui.clock import Clock

FRAMES = 4  # steps a second while a recording plays


class TimeKeys:
    """Keys of time, for an application that has a clock and views."""

    clock: Clock
    views: tuple[View, ...]

    def kick(self) -> None:
        """Have the present screen ask for fresh data."""

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
        if self.clock.advance(1 / FRAMES):
            self.kick()


def move(focused: Widget | None, way: str) -> None:
    """What arrows, Home and End do in a list or in what scrolls; a recording keeps those keys for time."""
    names = {"home": ("first", "scroll_top"), "end": ("last", "scroll_bottom")}.get(way, (f"cursor_{way}",))
    for widget in focused.ancestors_with_self if focused is not None else ():
        action = next((a for n in (*names, f"scroll_{way}") if (a := getattr(widget, f"action_{n}", None))), None)
        with suppress(SkipAction):  # it cannot move: what is around it may
            if action is not None:
                action()
                return
