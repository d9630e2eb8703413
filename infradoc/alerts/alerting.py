"""What a watch talks to: hand over the findings that hold, and the rest happens.

`observe` only takes notes, so a watch never waits for a disk or a receiver; a thread of its own steps the core and
writes incidents and messages in one transaction; another one delivers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from infradoc.alerts import desk
from infradoc.alerts.catalog_words import area_of
from infradoc.alerts.clean import clean_text
from infradoc.alerts.clerk import Clerk
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.core import CLOCK_SLACK, Core
from infradoc.alerts.damage import mended, sound_database
from infradoc.alerts.database import StoreError, state_folder
from infradoc.alerts.deliver import Deliverer
from infradoc.alerts.incident import RANK, Incident
from infradoc.alerts.lease import BusyError, Lease
from infradoc.alerts.message import change_message
from infradoc.alerts.outbox import Outbox
from infradoc.alerts.records import load_groups, load_incidents
from infradoc.alerts.sinks.all import make_sink
from infradoc.alerts.sinks.base import Sink

_MEND_AGAIN_SECONDS, _MEND_FAILED_SECONDS = 600.0, 10.0
MOST_CHANGES = 1000  # applied changes that wait in memory while the disk is full


@dataclass(frozen=True, slots=True)
class _Seen:
    now: float
    system: str | None
    findings: dict[str, dict[str, Mapping[str, Any]]]
    known: bool
    gone: bool = False


class Alerting:
    """One per state folder: a second one, in whatever process, is refused with BusyError."""

    def __init__(
        self,
        config: AlertsConfig,
        *,
        clock: Callable[[], float] = time.time,
        deliverer: Callable[..., Deliverer] = Deliverer,
    ) -> None:
        """Take the lease and restore what fires. Raises BusyError, StoreError, and what `check` of a sink does."""
        self.config = config
        self.clock = clock
        self.sinks = _checked_sinks(config)
        self.folder = state_folder(config.state)
        self._lease = Lease(self.folder)
        try:
            self._database, said = sound_database(self.folder, clock())
            self.core = Core(config.timing, config.group_by, _inhibition(config))
            self.core.restore(clock(), load_incidents(self._database), load_groups(self._database))
        except BaseException:
            self._lease.release()
            raise
        self.set_aside = [said] if said else []  # a sentence for each database that was damaged
        self._damaged, self._mend_after = False, 0.0
        self._unknown_wait = True  # messages of sinks that are no more may wait, and have yet to be laid aside
        self._make_deliverer = deliverer
        self._deliverer = self._deliverer_of(config, self.sinks)
        self._clerk = Clerk(config, self.core, self._database, self.sinks)
        self._guard = threading.RLock()  # held while the database is written, which may take seconds
        self._inbox = threading.Lock()  # held for an instant only: those who observe never wait
        self._seen: dict[str, _Seen] = {}
        self._changes: list[dict[str, Any]] = []
        self._trouble = ""
        self._bell = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None

    def _deliverer_of(self, config: AlertsConfig, sinks: Sequence[Sink]) -> Deliverer:
        return self._make_deliverer(self.folder, sinks, keep=config.keep, clock=self.clock)

    def reconfigure(self, config: AlertsConfig) -> None:
        """Put another configuration in force; another `state` counts at the next start only.

        Raises SecretError and StoreError; then everything is as it was. What was decided and could not be stored yet
        stays in memory, and nothing has to be written for the change: it works on a full disk.
        """
        sinks = _checked_sinks(config)
        deliverer = self._deliverer_of(config, sinks)
        deliverer.open()  # while the old one is at work: on a full disk the last to close could not open again
        with self._guard:
            self._deliverer.stop(0.0)
            self.config, self.sinks, self._deliverer = config, sinks, deliverer
            self.core.timing, self.core.group_by = config.timing, config.group_by
            self.core.area_of = _inhibition(config)
            self._clerk = Clerk(config, self.core, self._database, sinks)
            self._unknown_wait = True
            if self._thread is not None:
                with suppress(StoreError):  # it is the deliverer's trouble from now on
                    deliverer.start()
        self._bell.set()

    def observe(
        self,
        now: float,
        target: str,
        system: str | None,
        findings: Sequence[Mapping[str, Any]],
        *,
        lang: str = "en",
        also: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        known: bool = True,
    ) -> None:
        """The findings (report v1 dicts) that hold at `target` right now, all of them. Returns at once.

        also: the same findings in other languages. known=False: the target cannot be judged at present (no answer,
        say), so what is absent is not over.
        """
        texts: dict[str, dict[str, Mapping[str, Any]]] = {}
        for language, items in {lang: findings, **(also or {})}.items():
            for item in items:
                texts.setdefault(str(item["id"]), {})[language] = item
        with self._inbox:
            self._seen[target] = _Seen(now, system, texts, known)
        self._bell.set()

    def forget(self, now: float, target: str) -> None:
        """`target` is watched no more: what fires there is told as resolved."""
        with self._inbox:
            self._seen[target] = _Seen(now, None, {}, True, gone=True)
        self._bell.set()

    def changed(self, now: float, target: str, change: Mapping[str, Any]) -> None:
        """A change was applied (or undone). Keys, all optional: summary, knob, old, new, finding, verdict."""
        with self._inbox:
            self._changes = [*self._changes, change_message(now, target, change)][-MOST_CHANGES:]
        self._bell.set()

    @property
    def trouble(self) -> str:
        """One sentence while incidents or messages cannot be stored; "" when all is well."""
        return self._trouble or self._deliverer.trouble

    @property
    def unsaved(self) -> int:
        """Incidents and applied changes that could not be stored so far: after `stop` they are lost."""
        with self._guard, self._inbox:
            return len(self.core.dirty) + len(self._changes) if self._trouble else 0

    def incidents(self) -> list[Incident]:
        """What is known, open ones first. The objects are the core's own: read them only."""
        with self._guard:
            return sorted(self.core.incidents.values(), key=lambda i: (not i.active, -RANK.get(i.severity, 1), i.since))

    def figures(self) -> dict[str, Any]:
        """For a metrics page: open incidents by severity, and per sink what waits, is given up, and is switched off.

        Raises StoreError.
        """
        with self._guard:
            active = [i for i in self.core.incidents.values() if i.active and not i.carried_by]
            stored = desk.sinks(self._database)
        empty = {"waiting": 0, "dead": 0, "delivered": 0, "disabled": "", "last_ok": None}
        return {
            "firing": {name: sum(i.severity == name for i in active) for name in RANK},
            "sinks": {
                sink.name: {key: stored.get(sink.name, {}).get(key) or value for key, value in empty.items()}
                for sink in self.sinks
            },
        }

    def refusals(self) -> dict[str, str]:
        """Per configured sink why nothing gets through at present; "" where it does. Raises StoreError."""
        with self._guard:
            stored = desk.remembered(self._database)
        kept = {sink.name: stored.get(sink.name, {}) for sink in self.sinks}
        return {name: str(row.get("disabled") or row.get("error") or "") for name, row in kept.items()}

    def start(self) -> None:
        """Begin stepping and delivering in the background. Raises StoreError."""
        self._deliverer.start()
        self._thread = threading.Thread(target=self._run, name="alerts-core", daemon=True)
        self._thread.start()

    def stop(self, drain: float = 5.0) -> None:
        """Take in what was observed last, deliver for at most `drain` seconds, end, and give the lease back."""
        self._ending = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(10.0)
            self._deliverer.stop(drain)
        self._database.close()
        self._lease.release()

    def _run(self) -> None:
        while True:
            self._bell.wait(0.5)
            self._bell.clear()
            last = self._ending
            try:
                self.step(self.clock())
            except Exception as error:  # told, and the next look may be a better one: the thread must live
                self._trouble = f"Internal error: {type(error).__name__}: {clean_text(str(error), 200)}"
            if last:
                return

    def step(self, now: float) -> None:
        """Take in what was observed, and queue what is due. A database that fails now is tried again at the next."""
        with self._guard:
            with self._inbox:
                seen, self._seen = self._seen, {}
                changes, self._changes = self._changes, []
            self.core.follow(now)
            for target, item in seen.items():
                at = min(item.now, now + CLOCK_SLACK)  # noted before the clock was set back
                if item.gone:
                    self.core.drop_target(at, target)
                else:
                    self.core.observe(at, target, item.system, item.findings, known=item.known)
            self.core.advance(now)
            try:
                self._lease.hold()
                self._mend(now)
                self._lay_unknown_aside()
                queued = self._clerk.store(now, changes)
            except (StoreError, BusyError) as error:
                self._trouble = str(error)
                self._damaged = isinstance(error, StoreError) and error.damaged
                with self._inbox:
                    self._changes = [*changes, *self._changes][-MOST_CHANGES:]
                return
            self._trouble = ""
        if queued:
            self._deliverer.wake()

    def _mend(self, now: float) -> None:
        """Should the database have been found damaged, go on with a new one. Raises StoreError.

        Not again and again: a disk that damages every file must not be filled with them.
        """
        if not (self._damaged or self._deliverer.damaged) or time.monotonic() < self._mend_after:
            return
        self._mend_after = time.monotonic() + _MEND_FAILED_SECONDS
        said = mended(self.folder, now)
        self._damaged = self._deliverer.damaged = False
        if said:
            self._mend_after = time.monotonic() + _MEND_AGAIN_SECONDS
            self.set_aside.append(said)
            self.core.dirty |= set(self.core.incidents)

    def _lay_unknown_aside(self) -> None:
        if self._unknown_wait:
            Outbox(self._database).drop_unknown(self.config.sinks)
            self._unknown_wait = False


def _checked_sinks(config: AlertsConfig) -> list[Sink]:
    sinks = [make_sink(sink) for sink in config.sinks.values()]
    for sink in sinks:
        sink.check()
    return sinks


def _inhibition(config: AlertsConfig) -> Callable[[str], str] | None:
    return area_of if config.critical_inhibits_warning else None
