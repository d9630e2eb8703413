"""Watches one live target in a thread of its own: the caller never waits for the network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.fleet.applied import AppliedChanges
from infradoc.fleet.chinese import in_language
from infradoc.fleet.engine_view import EngineView
from infradoc.fleet.marking import Marks
from infradoc.fleet.model import Mark, Watched
from infradoc.fleet.restarts import ProcessWatch
from infradoc.fleet.vitals import board_vitals
from infradoc.load.http import Origin
from infradoc.model import Reading
from infradoc.monitor.attach import Target, attach
from infradoc.monitor.loop import Evaluator, Monitor, Tick
from infradoc.remediation.journal import ChangeRecord
from infradoc.report.build import finding_part, server_seen, status_of
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Store
from infradoc_rules.catalog import Catalog
from infradoc_rules.model import Finding

_ASKED_FOR = ("log", "client", "admin")  # sources that somebody named: when they fail, that person wants to know
OnTick = Callable[["TargetWatcher", Watched], None]


class LockedEvaluator(Evaluator):
    """An evaluator that writes to the store under a lock, so that others may read between two ticks."""

    def __init__(self, store: Store, catalog: Catalog, lang: str, lock: threading.RLock) -> None:
        super().__init__(store, catalog, lang)
        self._lock = lock

    def feed(self, readings: Sequence[Reading], now: float) -> Tick:
        """As `Evaluator.feed`. The sources were read before, without the lock."""
        with self._lock:
            return super().feed(readings, now)


class TargetWatcher:
    """One live target. `state` is always at hand; `reading()` lends the store for a moment."""

    def __init__(
        self,
        spec: str,
        config: Config,
        catalog: Catalog,
        lang: str = "en",
        period: float = 1.0,
        on_tick: OnTick | None = None,
    ) -> None:
        """Binds the sources and asks nothing yet. Raises TargetError, ConfigError, SecretError.

        `on_tick` is called in the watcher's thread after each look; what it raises ends in `state.error`.
        """
        self.spec = spec
        self.target: Target = attach(spec, config, period)
        self.monitor = Monitor(self.target, catalog, lang)
        self._lock = threading.RLock()
        self.monitor.evaluator = LockedEvaluator(self.target.store, catalog, lang, self._lock)
        self._on_tick = on_tick
        self._lang = lang
        self._named = spec in config.targets
        self._applied = AppliedChanges(Origin.parse(self.target.url).url if self.target.url else "")
        self._marks = Marks()
        self._process = ProcessWatch()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {spec}", daemon=True)
        self._state = Watched(spec, self.target.name, period=period)

    # --- life --------

    def start(self) -> None:
        """Begin to look, once a period. To be called once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """Ask the thread to end and wait at most `timeout` seconds. False when it still hangs in a look.

        The thread closes its sources itself, now or when its look is over.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._stop.is_set():
                self.look()
                due = max(due + self.target.store.period, time.monotonic())
                self._stop.wait(due - time.monotonic())
        finally:
            self.monitor.close()

    def look(self) -> Watched:
        """One look, in the calling thread. A fault of a rule or of `on_tick` is told in `state.error`."""
        try:
            self._state = self._judged(self.monitor.tick(time.time()))
        except Exception as error:
            self._state = failed(self._state, error, self._lang)
        try:
            if self._on_tick is not None and not self._stop.is_set():  # a target that was removed is nobody's news
                self._on_tick(self, self._state)
        except Exception as error:
            self._state = failed(self._state, error, self._lang)
        return self._state

    def _judged(self, tick: Tick) -> Watched:
        changes = self._applied.read()
        with self._lock:
            restart = self._process.look(tick.frame)
            self.monitor.evaluator.recent_actions = self._applied.recent_actions(self._process.started)
            self._marks.add_events(tick.events, tick.now, restart)
            self._marks.add_settings(self.target.store.marks)
            self._marks.add_changes(changes)
            return self._watched(tick, changes)

    def _watched(self, tick: Tick, changes: tuple[ChangeRecord, ...]) -> Watched:
        store, log = self.target.store, self.monitor.log
        source = "metrics" if self.target.url else next(iter(store.sources), "log")
        seen, error = store.sources.get(source), store.errors.get(source)
        trouble = error or self._applied.error or self._trouble()
        up = seen is not None and error is None
        could_judge = log.enough_seen and (server_seen(store) if self.target.url else up)
        return Watched(
            spec=self.spec,
            name=self.target.name,
            system=store.system,
            version=store.version,
            period=store.period,
            tick_time=tick.now,
            up=up,
            seen=seen,
            status=status_of(tick.findings, could_judge),
            findings=tuple(finding_part(finding, tick.frame) for finding in tick.findings),
            vitals=board_vitals(tick.frame),
            changes=changes,
            error=in_language(trouble, self._lang) or None,
            looks=log.count,
            started=self._process.started,
            checked=log.checked,
            blind=tuple(log.blind.items()),
        )

    def _trouble(self) -> str:
        """Why a source that somebody named shows nothing; "" when all of them look."""
        for source in filter(None, map(self.target.source, _ASKED_FOR)):
            explain = getattr(source, "why_not", None)
            if error := self.target.store.errors.get(source.name):
                return error
            if why := explain() if explain is not None else None:
                return f"The source {source.name} shows nothing: {why.rstrip('.')}."
        return ""

    # --- looking at it --------

    @property
    def url(self) -> str:
        """The server's URL; empty for a target that is only a log."""
        return self.target.url

    @property
    def state(self) -> Watched:
        """The newest state; never blocks."""
        return self._state

    @property
    def span(self) -> tuple[float, float]:
        """From the first look to now (Unix seconds)."""
        now = self.now()
        with self._lock:
            return (next(iter(self.target.store.look_times(now)), now), now)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What holds right now, as the rules gave it: what a plan is made from."""
        return self.monitor.findings

    def engine(self) -> EngineView:
        """A client for what only the bundled engine shows. Raises FetchError for certificates it cannot use."""
        return EngineView(self.url, self.target.config.auth, self._named)

    def now(self) -> float:
        """The present."""
        return time.time()

    @contextmanager
    def reading(self, at: float | None = None) -> Iterator[StoreFrame]:
        """A frame at `at` (default: now). Keep the block short: the next tick waits for its end.

        Arrays that were selected stay valid after the block; selecting is allowed only inside.
        """
        with self._lock:
            yield self.target.store.frame(self.now() if at is None else at)

    def marks(self) -> tuple[Mark, ...]:
        """What happened since the start, oldest first."""
        with self._lock:
            return self._marks.all()


def failed(state: Watched, error: Exception, lang: str = "en") -> Watched:
    """The state after a look that went wrong inside infradoc itself: nothing of it counts as seen."""
    said = str(error) if isinstance(error, InfradocError) else f"{type(error).__name__}: {error}"
    return replace(state, up=False, status="unknown", error=in_language(f"The look failed: {said}", lang))
