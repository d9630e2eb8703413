"""What `fix` and `demo` share: a monitor on a live target, the engine's admin API, and the plan that follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from infradoc.config import Config, TargetConfig
from infradoc.errors import InfradocError
from infradoc.load.http import Origin
from infradoc.model import Plan, Reading
from infradoc.monitor.attach import attach, target_config
from infradoc.monitor.loop import Monitor, Tick
from infradoc.remediation.admin import AdminClient, AdminError, EngineState
from infradoc.remediation.client_log import ClientLog
from infradoc.remediation.guard import COOLDOWN_SECONDS, Guard
from infradoc.remediation.journal import Journal
from infradoc.remediation.lengths import sent_tokens
from infradoc.remediation.plan import Context, make_plan
from infradoc.remediation.process import started_at
from infradoc.remediation.run import Fixer, Timing
from infradoc.sources.admin import token_for
from infradoc_rules.catalog import Catalog, load_catalog
from infradoc_rules.model import Fact, Finding
from infradoc_rules.schema import Rule
from infradoc_rules.vocabulary import finding_ids

AFTER_FIRST_FINDING = 4  # further looks: what fires together should be planned together
LENGTH_QUANTILE = 0.99
RECENT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch saw. `findings` are those of the last look; `errors` are the sources' present faults."""

    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    unknown: tuple[str, ...]
    seconds: float


class Session:
    """One target being repaired. Use it in a `with` statement. `started`: when its process began, once it is known."""

    started: float | None = None

    def __init__(
        self,
        spec: str,
        config: Config,
        *,
        client: Path | None = None,
        lang: str = "en",
        journal: Journal | None = None,
    ) -> None:
        """Raises TargetError, ConfigError, SecretError or FetchError (its certificates); makes no request."""
        found = target_config(spec, config)
        if not found.url:
            raise InfradocError(f"{spec} has no server URL, only files.", "A fix needs a running server.")
        self.spec = spec
        self.lang = lang
        self.named = spec in config.targets
        if client is not None:
            found = replace(found, client=str(client))
        self.config: TargetConfig = found
        self.url = Origin.parse(found.url).url
        self.journal = journal or Journal()
        self.catalog: Catalog = load_catalog()
        self.monitor = Monitor(
            attach(spec, Config({spec: found}, config.path)), self.catalog, lang, self._recent_actions()
        )
        self.clients = ClientLog(Path(found.client)) if found.client else None
        # Whoever has a server repaired has named it, so it may be shown the environment's token.
        self.admin = AdminClient(self.url, token_for(self.url, found.auth, asked=True), found.auth)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.monitor.close()
        self.admin.close()

    def _recent_actions(self) -> frozenset[str]:
        """Names of actions in force on this target that are not old, so that no rule advises their opposite."""
        since = time.time() - RECENT_SECONDS
        changes = self.journal.changes(self.url)
        return frozenset(c.intent.action for c in changes if c.open and c.last.time >= since and c.is_of(self.started))

    def rule(self, finding: str) -> Rule:
        """The rule behind a finding id. Raises InfradocError naming the nearest one."""
        try:
            return self.catalog.get(finding)
        except LookupError as error:
            text = str(error)
            raise InfradocError(f"{text[:1].upper()}{text[1:]}.", "`infradoc rules list` shows all.") from error

    def watch(self, seconds: float, only: str | None = None, on_look: Callable[[float], None] | None = None) -> Watched:
        """Look once a second until the finding `only` (or any) is there and has company, at most `seconds`.

        A change for a finding about lengths is sized by what clients send: the watch goes on until enough is known.
        """
        begin = time.monotonic()
        more: int | None = None
        while True:
            sized = self._note_lengths() or not self._needs_lengths(only)
            tick = self.look()
            elapsed = time.monotonic() - begin
            if on_look is not None:
                on_look(elapsed)
            seen = any(only is None or finding.id == only for finding in tick.findings)
            if more is None and seen:
                more = AFTER_FIRST_FINDING
            if (more == 0 and sized and seen) or elapsed >= seconds:  # one that comes and goes is waited for
                break
            more = None if more is None else max(0, more - 1)
            time.sleep(max(0.0, min(1.0, seconds - elapsed)))
        errors = tuple(self.monitor.target.store.errors.values())
        unknown = tuple(result.id for result in tick.results.unknown)
        return Watched(tick.findings, errors, unknown, elapsed)

    def look(self) -> Tick:
        """Look once; changes of a process that has ended meanwhile do not count any more."""
        tick = self.monitor.tick(time.time())
        started = started_at(tick.frame)
        if started is not None and started != self.started:
            self.started = started
            self.monitor.evaluator.recent_actions = self._recent_actions()
        return tick

    def _needs_lengths(self, finding_id: str | None) -> bool:
        known = finding_ids().get(finding_id or "")
        return self.clients is not None and known is not None and known.area == "length"

    def _note_lengths(self) -> bool:
        """Let the sizing functions know how long requests are as their clients send them, cut or not; whether known."""
        if self.clients is None:
            return False
        longest = sent_tokens(self.clients.records(), LENGTH_QUANTILE)
        if longest is None:
            return False
        fact = Fact("client.request_tokens_p99", longest, "file", str(self.clients.path))
        self.monitor.target.store.add(Reading("lengths", time.time(), facts=[fact]))
        return True

    @property
    def system(self) -> str | None:
        """The engine that was recognised."""
        return self.monitor.target.store.system

    def engine(self) -> EngineState | None:
        """The engine's knobs; None for a server that has no admin API. Raises AdminError when it cannot be used."""
        return self.admin.config() if self.system == "infradoc" else None

    def plan(self, findings: Sequence[Finding], only: str | None, cooldown: float = COOLDOWN_SECONDS) -> Plan:
        """The plan for what was found. Raises AdminError, JournalError."""
        guard = Guard(self.journal.changes(self.url), cooldown=cooldown, lang=self.lang, started=self.started)
        permissions = self.config.permissions if self.named else None
        context = Context(self.url, guard, time.time(), self.engine(), permissions, self.lang)
        return make_plan(findings, context, only)

    def fixer(self, timing: Timing, say: Callable[[str], None]) -> Fixer:
        """What carries a step out and judges it."""
        return Fixer(self.monitor, self.admin, self.journal, self.clients, timing, say, self.lang)


__all__ = ["AdminError", "Session", "Watched"]
