"""All targets of one run: started and stopped together, added and removed while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from infradoc.config import Config
from infradoc.fleet.model import Watched
from infradoc.fleet.watcher import OnTick, TargetWatcher
from infradoc_rules.catalog import Catalog

# All looks at once would be a burst on this machine each period: the starts are spread over it.
_SPREAD = 0.8


class Fleet:
    """Watchers by spec, in the order given."""

    def __init__(
        self,
        specs: Sequence[str],
        config: Config,
        catalog: Catalog,
        lang: str = "en",
        period: float = 1.0,
        on_tick: OnTick | None = None,
    ) -> None:
        """Checks all specs and asks nothing yet. Raises TargetError, ConfigError, SecretError."""
        self._catalog, self._lang, self._period = catalog, lang, period
        self._on_tick = on_tick
        self._started = False
        self._watchers = {spec: self._made(spec, config) for spec in dict.fromkeys(specs)}

    def _made(self, spec: str, config: Config) -> TargetWatcher:
        return TargetWatcher(spec, config, self._catalog, self._lang, self._period, self._on_tick)

    @property
    def targets(self) -> tuple[TargetWatcher, ...]:
        """All watchers."""
        return tuple(self._watchers.values())

    @property
    def states(self) -> tuple[Watched, ...]:
        """The newest state of each target; never blocks."""
        return tuple(watcher.state for watcher in self.targets)

    def get(self, spec: str) -> TargetWatcher | None:
        """The watcher of that spec."""
        return self._watchers.get(spec)

    def start(self) -> None:
        """Start all watchers; returns at once or within a fraction of a period."""
        self._started = True
        self._start(self.targets)

    def _start(self, watchers: Iterable[TargetWatcher]) -> None:
        many = list(watchers)
        for place, watcher in enumerate(many):
            if place:
                time.sleep(min(0.02, _SPREAD * self._period / len(many)))
            watcher.start()

    def stop(self, timeout: float = 5.0) -> list[str]:
        """Stop all, waiting `timeout` seconds in all; returns the specs whose look still hangs."""
        return self._stop(self.targets, timeout)

    @staticmethod
    def _stop(watchers: Iterable[TargetWatcher], timeout: float) -> list[str]:
        many, end = list(watchers), time.monotonic() + timeout
        for watcher in many:
            watcher.stop(0.0)
        return [watcher.spec for watcher in many if not watcher.stop(max(0.0, end - time.monotonic()))]

    def reload(self, specs: Sequence[str], config: Config) -> tuple[list[str], list[str]]:
        """Follow a new list of targets and a new configuration; returns (added, removed) specs.

        A target whose configuration is unchanged goes on with its history; a changed one starts anew and is in both
        lists. Raises as the constructor does, and then leaves everything as it was.
        """
        fresh: dict[str, TargetWatcher] = {}
        try:
            for spec in dict.fromkeys(specs):
                made, old = self._made(spec, config), self._watchers.get(spec)
                fresh[spec] = old if old is not None and old.target.config == made.target.config else made
                if fresh[spec] is not made:
                    made.monitor.close()
        except BaseException:
            for spec, one in fresh.items():
                if self._watchers.get(spec) is not one:
                    one.monitor.close()
            raise
        removed = [one for spec, one in self._watchers.items() if fresh.get(spec) is not one]
        added = [one for spec, one in fresh.items() if self._watchers.get(spec) is not one]
        self._watchers = fresh
        self._stop(removed, 0.0)
        if self._started:
            self._start(added)
        return [one.spec for one in added], [one.spec for one in removed]
