"""A recording as a target that stands at a moment of one's choice: read and judged once, then moved through at will."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.fleet.engine_view import EngineView
from infradoc.fleet.marking import Marks
from infradoc.fleet.model import Mark, Watched
from infradoc.fleet.restarts import ProcessWatch
from infradoc.fleet.vitals import board_vitals
from infradoc.fleet.watcher import LockedEvaluator
from infradoc.monitor.loop import Tick
from infradoc.monitor.replay import sampling_period
from infradoc.report.build import finding_part, server_seen, status_of
from infradoc.report.model import Status
from infradoc.signals.frame import StoreFrame
from infradoc.signals.store import Limits, Store
from infradoc.sources.recording import Recording
from infradoc_rules.catalog import Catalog
from infradoc_rules.model import Finding

SAMPLES_KEPT = 200_000  # a series of a recording is kept whole up to here: two days at a page a second


@dataclass(frozen=True, slots=True)
class _Moment:
    """What the rules said at one tick."""

    time: float
    status: Status
    findings: tuple[Mapping[str, Any], ...]
    seen: float | None
    error: str | None


class ReplayView:
    """One recording. `load()` reads it to the end (in a thread by `start()`); until then it grows at its end."""

    url = ""

    def __init__(self, path: Path, catalog: Catalog, lang: str = "en") -> None:
        """Opens the recording. Raises RecordingError when it is none."""
        self.spec, self._lang = str(path), lang
        self._recording = Recording(path)
        self._store = Store(period=sampling_period(self._recording), limits=Limits(samples_per_series=SAMPLES_KEPT))
        self._lock = threading.RLock()
        self._evaluator = LockedEvaluator(self._store, catalog, lang, self._lock)
        self._marks = Marks()
        self._process = ProcessWatch()
        self._moments: list[_Moment] = []
        self._times: list[float] = []
        self._at: float | None = None  # None: at the end, wherever that is by now
        self._vitals: tuple[float, Mapping[str, float | None]] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"replay {path}", daemon=True)
        self.loaded = False
        self.error: str | None = None

    # --- reading it --------

    def start(self) -> None:
        """Read it in a thread."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """Stop reading; False when the thread is still at it after `timeout` seconds."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.load()
        except InfradocError as error:
            self.error = in_language(str(error), self._lang)
        except Exception as error:  # a damaged file must not end the program, but be told
            said = f"{self.spec} cannot be read further: {type(error).__name__}: {error}"
            self.error = in_language(said, self._lang)
        self.loaded = True

    def load(self) -> None:
        """Read and judge all of it, in the calling thread."""
        for recorded in self._recording.ticks():
            if self._stop.is_set():
                return
            self._store.provide(self._recording.provides)
            tick = self._evaluator.feed(recorded.readings, recorded.now)
            with self._lock:
                self._note(tick)
        self.loaded = True

    def _note(self, tick: Tick) -> None:
        self._marks.add_events(tick.events, tick.now, self._process.look(tick.frame))
        self._marks.add_settings(self._store.marks)
        findings: tuple[Mapping[str, Any], ...]
        findings = tuple(finding_part(finding, tick.frame) for finding in tick.findings)
        if self._moments and self._moments[-1].findings == findings:
            findings = self._moments[-1].findings  # a quiet hour holds one tuple, not 3600
        could_judge = self._evaluator.log.enough_seen and server_seen(self._store)
        seen, error = self._store.sources.get("metrics"), self._store.errors.get("metrics")
        self._moments.append(_Moment(tick.now, status_of(tick.findings, could_judge), findings, seen, error))
        self._times.append(tick.now)

    # --- moving through it --------

    @property
    def span(self) -> tuple[float, float]:
        """First and last time read so far (Unix seconds); (0, 0) before the first."""
        with self._lock:
            return (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """None to plan from: a recording cannot be changed."""
        return ()

    def engine(self) -> EngineView | None:
        """None: a recording holds neither blocks nor requests."""
        return None

    def seek(self, moment: float | None) -> float:
        """Stand at a moment, kept inside the recording; None is its end. Returns where it stands."""
        first, last = self.span
        with self._lock:
            self._at = None if moment is None or moment >= last else max(first, moment)
        return self.now()

    def step(self, seconds: float) -> float:
        """Move by so many seconds; returns where it stands."""
        return self.seek(self.now() + seconds)

    def now(self) -> float:
        """The moment that is shown."""
        at = self._at
        return self.span[1] if at is None else at

    @property
    def state(self) -> Watched:
        """What was known at the moment."""
        with self._lock:
            now = self.now()
            place = bisect_right(self._times, now) - 1
            name = Path(self.spec).name or self.spec
            if place < 0:
                return Watched(self.spec, name, error=self.error, period=self._store.period)
            moment = self._moments[place]
            up = moment.error is None and moment.seen is not None
            return Watched(
                spec=self.spec,
                name=name,
                system=self._store.system,
                version=self._store.version,
                period=self._store.period,
                tick_time=moment.time,
                up=up,
                seen=moment.seen,
                status=moment.status,
                findings=moment.findings,
                vitals=self._vitals_at(now),
                error=in_language(moment.error, self._lang) or self.error,
                looks=place + 1,
                checked=self._evaluator.log.checked,
                blind=tuple(self._evaluator.log.blind.items()),
            )

    def _vitals_at(self, now: float) -> Mapping[str, float | None]:
        if self._vitals is None or self._vitals[0] != now:
            self._vitals = (now, board_vitals(self._store.frame(now)))
        return self._vitals[1]

    @contextmanager
    def reading(self, at: float | None = None) -> Iterator[StoreFrame]:
        """A frame at `at` (default: the moment that is shown)."""
        with self._lock:
            yield self._store.frame(self.now() if at is None else at)

    def marks(self) -> tuple[Mark, ...]:
        """What happened up to the moment, oldest first."""
        with self._lock:
            return self._marks.all(self.now())
