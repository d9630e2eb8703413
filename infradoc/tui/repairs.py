"""Repairs under way and what they said, apart from any screen: leaving a screen does not end a fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from textual.message_pump import MessagePump

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.fleet.repair import Options, Repair
from infradoc.model import PlanStep
from infradoc.remediation.table import outcome_lines, verdict_line
from infradoc.tui.messages import RepairMoved
from infradoc.tui.threads import post, spawn
from infradoc_rules.model import Finding

Say = Callable[[str, bool], None]  # (text, whether it was the last)


@dataclass(slots=True)
class Run:
    """One repair of one target. `lines` are what it said so far; `verdict` is the one that tells the verdict."""

    spec: str
    repair: Repair
    lines: list[str] = field(default_factory=list)
    ended: bool = False
    verdict: str = ""

    def carry_out(self, step: PlanStep, findings: Sequence[Finding], lang: str, say: Say) -> None:
        """Run the repair in the calling thread to its end; whatever happens, the last line tells it."""
        try:
            outcome = self.repair.run(step, findings, lambda text: say(text, False))
            self.verdict = verdict_line(outcome.verdict, lang)
            for line in (self.verdict, *outcome_lines(outcome, lang)):
                say(line, False)
            say("", True)
        except InfradocError as error:
            say(str(error), True)
        except Exception as error:
            say(f"{type(error).__name__}: {error}", True)

    def take_back(self, say: Say) -> None:
        """Undo in the calling thread."""
        try:
            say(self.repair.undo(), True)
        except InfradocError as error:
            say(str(error), True)
        except Exception as error:
            say(f"{type(error).__name__}: {error}", True)


class Repairs:
    """All repairs of this screen, at most one a target. Written on the UI thread only."""

    def __init__(self, receiver: MessagePump, config: Config, lang: str, options: Options) -> None:
        self._receiver, self._config, self._lang, self._options = receiver, config, lang, options
        self._runs: dict[str, Run] = {}

    def get(self, spec: str) -> Run | None:
        """The last repair of a target."""
        return self._runs.get(spec)

    def running(self, spec: str) -> bool:
        """Whether a repair of the target is under way."""
        run = self._runs.get(spec)
        return run is not None and not run.ended

    @property
    def under_way(self) -> list[Run]:
        """All that have not ended."""
        return [run for run in self._runs.values() if not run.ended]

    def repair(self, spec: str, finding: str) -> Repair:
        """Work on one finding; nothing is begun."""
        return Repair(spec, self._config, finding, self._lang, self._options)

    def begin(self, spec: str, finding: str, step: PlanStep, findings: Sequence[Finding]) -> None:
        """Carry a step out in a thread that the program waits for."""
        run = self._runs[spec] = Run(spec, self.repair(spec, finding))
        spawn(lambda: run.carry_out(step, findings, self._lang, self._sayer(spec)), "repair", must_end=True)

    def undo(self, spec: str, finding: str) -> None:
        """Take the newest change back in a thread."""
        run = self._runs[spec] = Run(spec, self.repair(spec, finding))
        spawn(lambda: run.take_back(self._sayer(spec)), "undo", must_end=True)

    def note(self, message: RepairMoved) -> Run | None:
        """Keep what a repair said."""
        run = self._runs.get(message.spec)
        if run is not None:
            if message.text:
                run.lines.append(message.text)
            run.ended = run.ended or message.ended
        return run

    def stop(self) -> None:
        """End all at their next look; what is in force is taken back."""
        for run in self.under_way:
            run.repair.stop()

    def _sayer(self, spec: str) -> Say:
        return lambda text, ended: post(self._receiver, RepairMoved(spec, text, ended))
