"""Which moment is shown: the present, the moment of a pause, or where a recording stands and plays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from infradoc.fleet.model import View, Watched
from infradoc.fleet.replaying import ReplayView


class Clock:
    """Time of the whole screen. Written on the UI thread, read by workers."""

    def __init__(self, replays: Sequence[ReplayView]) -> None:
        self.replays = tuple(replays)
        self.speed = 1
        self.playing = False
        self._held: Mapping[str, tuple[float, Watched]] = {}

    @property
    def paused(self) -> bool:
        """Whether live targets are held at a moment."""
        return bool(self._held)

    def toggle(self, views: Sequence[View]) -> None:
        """Hold time, or let it go on. A recording that plays stops; one that stands before its end goes on."""
        stands = not self.playing and any(replay.now() < replay.span[1] for replay in self.replays)
        self.playing = stands and not any(view.url for view in views)
        self._held = {} if self._held else {view.spec: (view.now(), view.state) for view in views if view.url}

    def frozen(self, view: View) -> Watched | None:
        """The state at the pause."""
        held = self._held.get(view.spec)
        return held[1] if held is not None else None

    def moment(self, view: View) -> float:
        """The moment to show of a view."""
        held = self._held.get(view.spec)
        return held[0] if held is not None else view.now()

    # --- recordings --------

    def step(self, seconds: float) -> None:
        """Move all recordings by so many seconds."""
        self.playing = False
        for replay in self.replays:
            replay.step(seconds)

    def seek_end(self, last: bool) -> None:
        """All recordings to their start or their end."""
        self.playing = False
        for replay in self.replays:
            replay.seek(None if last else replay.span[0])

    def play(self) -> None:
        """Start or stop; from the end it starts over."""
        self.playing = not self.playing
        if self.playing and all(replay.now() >= replay.span[1] for replay in self.replays):
            for replay in self.replays:
                replay.seek(replay.span[0])

    def advance(self, seconds: float) -> bool:
        """Move on while playing; returns whether anything moved, or is still being read."""
        if not self.playing:
            return any(not replay.loaded for replay in self.replays)
        for replay in self.replays:
            replay.step(seconds * self.speed)
        if all(replay.loaded and replay.now() >= replay.span[1] for replay in self.replays):
            self.playing = False
        return True

    def text(self, say: Mapping[str, str], view: View | None) -> str:
        """The moment in words."""
        parts = []
        if self.playing:
            parts.append(say["playing"].format(speed=self.speed))
        if self.paused:
            parts.append(say["paused"])
        if isinstance(view, ReplayView):
            first, last = view.span
            when = datetime.fromtimestamp(view.now(), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            parts.append(f"+{view.now() - first:.0f} / {last - first:.0f} s" + ("" if view.loaded else " …"))
            parts.append(when)
        else:
            moment = self.moment(view) if view is not None else self._any_moment()
            parts.append(datetime.fromtimestamp(moment).strftime("%H:%M:%S"))
        return "  ".join(parts)

    def _any_moment(self) -> float:
        return next((moment for moment, _ in self._held.values()), time.time())
