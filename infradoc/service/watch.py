"""The service: a fleet that is watched, its findings handed to alerts and history, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import AlertsConfig, alerts_config
from infradoc.alerts.database import StoreError, state_folder
from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.fleet.fleet import Fleet
from infradoc.fleet.model import Watched
from infradoc.fleet.watcher import TargetWatcher
from infradoc.remediation.journal import ChangeRecord
from infradoc.service.changes import told_change
from infradoc.service.config import WatchConfig
from infradoc.service.exporter import OwnFigures
from infradoc.service.history import HISTORY_NAME, History, HistoryError
from infradoc.service.http import Server
from infradoc.service.journal_lines import Lines
from infradoc.service.named import NamedSources
from infradoc.service.news import News
from infradoc.service.pages import Condition, Pages
from infradoc.service.systemd import notify, watchdog_seconds
from infradoc.service.texts import OtherTexts
from infradoc.service.troubles import Troubles
from infradoc.service.words import say
from infradoc_rules.catalog import Catalog

DRAIN_SECONDS = 5.0
_STOP_SECONDS = 5.0
_TEND_SECONDS = 2.0  # how often troubles are looked for, and the service manager is told
_NEW_CHANGE_SECONDS = 600.0  # a change in the journal that is older at the first look was told by somebody else

Load = Callable[[], tuple[Config, WatchConfig]]


class Watch:
    """One run of `infradoc watch`. `load` reads the configuration, at the start and at each reload."""

    def __init__(self, load: Load, catalog: Catalog, lines: Lines, clock: Callable[[], float] = time.time) -> None:
        """Take the lease of the state folder and bind everything. Raises InfradocError with what cannot be used."""
        self._load, self._catalog, self._lines, self._clock = load, catalog, lines, clock
        self._config, self.settings = load()
        self._started = clock()
        self._guard = threading.RLock()
        self._troubles = Troubles(self._say)
        self._lang = self.settings.lang  # to the end: another one takes effect at the next start
        self._named = NamedSources(self._troubles, self._lang)
        self._news = News(lines, self._lang)
        self._other_texts = OtherTexts(catalog)
        self._set_aside_said = 0
        self._stages: set[tuple[str, str]] = set()  # of applied changes, that the history has
        self._bell, self._ending, self._reload = threading.Event(), False, False
        self._alerting = Alerting(alerts_config(self._config))
        self.server: Server | None = None
        try:
            self._history = History(self._history_path(), self.settings.retention, mends=True)
            self._fleet = self._made_fleet()
            self._history.end_others(self._started, {watcher.state.name for watcher in self._fleet.targets})
            if self.settings.listen is not None:
                pages = Pages(self._fleet, self._history, self._own_figures, self._condition, clock)
                self.server = Server(self.settings.listen, pages.routes())
        except BaseException:
            self._alerting.stop(0.0)
            raise

    def _history_path(self) -> Path:
        return self.settings.history or state_folder(alerts_config(self._config).state) / HISTORY_NAME

    def _made_fleet(self) -> Fleet:
        return Fleet(
            self.settings.targets, self._config, self._catalog, self.settings.lang, self.settings.period, self._looked
        )

    # --- life -------------------------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """For signal handlers: end soon."""
        self._ending = True
        self._bell.set()

    def ask_to_reload(self) -> None:
        """For signal handlers: read the configuration again."""
        self._reload = True
        self._bell.set()

    def run(self) -> None:
        """Watch until asked to stop."""
        self._alerting.start()
        if self.server is not None:
            self.server.start()
        self._fleet.start()
        where = self._text("pages_at", port=self.server.port) if self.server is not None else ""
        told = ", ".join(self._alerting.config.sinks) or self._text("nobody", file=self._config.name)
        self._say("watching", self._text("watching", targets=", ".join(self.settings.targets), sinks=told, where=where))
        self._say_set_aside()
        notify("READY=1")
        pause = min(_TEND_SECONDS, watchdog_seconds() or _TEND_SECONDS)
        while not self._ending:
            self._bell.wait(pause)
            self._bell.clear()
            if self._reload and not self._ending:
                self._reload = False
                self._read_again()
            self._note("alerts", self._alerting.trouble)
            self._look_at_sinks()
            self._say_set_aside()
            notify("WATCHDOG=1")
        self._stop()

    def _look_at_sinks(self) -> None:
        """A sink that refuses is silent by nature: say so, in its own words, until something gets through again."""
        try:
            refusals = self._alerting.refusals()
        except StoreError:
            return  # told as the trouble of all alerts
        for name, why in refusals.items():
            self._note(f"sink {name}", self._text("refused", sink=name, why=why) if why else "")

    def _say_set_aside(self) -> None:
        """Files that were damaged: said once, and shown on the health page for as long as this watch runs."""
        sentences = self._condition().set_aside
        for sentence in sentences[self._set_aside_said :]:
            self._say("trouble", sentence)
        self._set_aside_said = len(sentences)

    def _stop(self) -> None:
        notify("STOPPING=1")
        self._say("stopping", self._text("stopping", seconds=DRAIN_SECONDS))
        hanging = self._fleet.stop(_STOP_SECONDS)
        if hanging:
            self._say("trouble", self._text("hangs", targets=", ".join(hanging)))
        if self.server is not None:
            self.server.stop()
        self._alerting.stop(DRAIN_SECONDS)
        if lost := self._alerting.unsaved:
            self._say("trouble", self._text("unsaved", n=lost))
        self._history.close()

    def _read_again(self) -> None:
        notify("RELOADING=1")
        alerts = self._alerting.config
        try:
            config, settings = self._load()
            added, removed = self._follow(config, settings)
        except InfradocError as error:
            self._say("trouble", self._text("not_reloaded", why=error))
        else:
            none = self._text("none")
            parts = {"added": ", ".join(added) or none, "removed": ", ".join(removed) or none}
            parts["alerts"] = self._text("as_before" if alerts == self._alerting.config else "changed")
            self._say("reload", self._text("reloaded", **parts))
        notify("READY=1")

    def _follow(self, config: Config, settings: WatchConfig) -> tuple[list[str], list[str]]:
        """Put a new configuration in force, or leave everything as it was and raise InfradocError."""
        alerts = alerts_config(config)
        names = {watcher.spec: watcher.state.name for watcher in self._fleet.targets}
        added, removed = self._fleet.reload(settings.targets, config)
        try:
            if alerts != self._alerting.config:
                self._change_alerting(alerts)
        except InfradocError:
            self._fleet.reload(self.settings.targets, self._config)
            raise
        for key in ("listen", "history", "lang", "period"):
            if getattr(settings, key) != getattr(self.settings, key):
                self._say("reload", self._text("next_start", key=f"watch.{key}"))
        self._config, self.settings = config, settings
        self._history.retention = settings.retention
        for spec in set(removed) - set(added):
            self._forget(names[spec])
        return added, removed

    def _forget(self, name: str) -> None:
        """A target is watched no more: what held there is over, for receivers and in the history."""
        now = self._clock()
        with self._guard:
            self._alerting.forget(now, name)
            self._news.forget(name)
            self._other_texts.forget(name)
            self._named.forget(name)
        try:
            self._history.note(now, name, {})
        except HistoryError as error:
            self._note("history", str(error))

    def _change_alerting(self, config: AlertsConfig) -> None:
        """Sinks or times were changed. Raises InfradocError; then the old ones go on."""
        old = self._alerting.config
        self._alerting.reconfigure(config)
        for name in set(old.sinks) - set(config.sinks):
            self._troubles.forget(f"sink {name}")
        if config.state != old.state:
            self._say("reload", self._text("next_start", key="alerts.state"))

    # --- one look ---------------------------------------------------------------------------------------------------

    def _looked(self, watcher: TargetWatcher, state: Watched) -> None:
        """In the watcher's thread, after each of its looks."""
        now = state.tick_time if state.up and state.tick_time else self._clock()  # a look that failed has no time
        known = state.up and state.status != "unknown"
        found = {str(one["id"]): one for one in state.findings}
        with self._guard:
            if self._fleet.get(watcher.spec) is not watcher:
                return  # removed while it looked: its findings were told as over
            wanted = {sink.lang for sink in self._alerting.config.sinks.values()} - {self.settings.lang}
            also = self._other_texts.of(watcher, frozenset(found), wanted, now)
            self._alerting.observe(
                now, state.name, state.system, state.findings, lang=self.settings.lang, also=also, known=known
            )
            self._news.of_server(now, state)
            self._named.look(now, state)
            self._news.of_findings(now, state, found, known)
        self._remember(now, state, found, known)

    def _remember(self, now: float, state: Watched, found: Mapping[str, Mapping[str, Any]], known: bool) -> None:
        try:
            self._history.note(now, state.name, found, known)
            if state.up:
                self._history.measure(now, state.name, state.vitals)
            for record in state.changes:
                self._change(now, state.name, record)
            self._note("history", self._history.trouble)
        except HistoryError as error:
            self._note("history", str(error))

    def _change(self, now: float, target: str, record: ChangeRecord) -> None:
        """Tell each stage of an applied change once: when it came into force, its verdict, and that it was undone."""
        last = record.last
        if last.kind not in ("applied", "verdict", "undone") or not record.happened:
            return
        stage = f"{record.intent.change}:{last.kind}"
        if (target, stage) in self._stages:
            return  # the journal shows it at every look: the file is asked once
        told = told_change(record)
        is_new = self._history.change(target, stage, last.time, told["summary"])
        self._stages.add((target, stage))
        if is_new and last.time >= self._started - _NEW_CHANGE_SECONDS:
            self._say("change", self._text("change", target=target, what=told["summary"]), now, target=target)
            self._alerting.changed(last.time, target, told)

    def _text(self, key: str, /, **parts: object) -> str:
        return say(self._lang, key, **parts)

    def _note(self, part: str, trouble: str) -> None:
        self._troubles.note(part, trouble, self._text("works_again", part=part))

    def _say(self, event: str, text: str, now: float | None = None, **more: Any) -> None:
        self._lines.say(self._clock() if now is None else now, event, text, **more)

    # --- what the pages show ----------------------------------------------------------------------------------------

    def _condition(self) -> Condition:
        return Condition(self._troubles.now, [*self._alerting.set_aside, *self._history.set_aside])

    def _own_figures(self) -> OwnFigures:
        try:
            alerts = self._alerting.figures()
        except StoreError as error:
            self._note("alerts", str(error))
            alerts = {"firing": {}, "sinks": {}}
        return OwnFigures(self._started, len(self._troubles.now), alerts["firing"], alerts["sinks"])
