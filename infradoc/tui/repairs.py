"""Repairs under way and what they said, apart from any screen: leaving a screen does not end a fix."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from textual.message_pump import MessagePump

from infradoc.config import Config
from infradoc.errors import InfradocError
from infradoc.fleet.chinese import in_language
from infradoc.fleet.repair import Options, Repair, Stage
from infradoc.model import PlanStep
from infradoc.remediation.table import outcome_lines, verdict_line
from infradoc.remediation.words import say as said
from infradoc.tui.messages import RepairMoved
from infradoc.tui.paint import bar
from infradoc.tui.threads import post, spawn
from infradoc_rules.model import Finding

Say = Callable[[str, bool], None]  # (text, whether it was the last)
OnStage = Callable[[Stage], None]
_BAR = 12


@dataclass(slots=True)
class Run:
    """One repair of one target. `lines` are what it said so far; `verdict` is the one that tells the verdict.

    `stage` is what it waits for now, `until` when that ends at the latest (Unix seconds).
    """

    spec: str
    repair: Repair
    lines: list[str] = field(default_factory=list)
    ended: bool = False
    verdict: str = ""
    stage: Stage | None = None
    until: float = 0.0

    def carry_out(
        self, step: PlanStep, findings: Sequence[Finding], lang: str, say: Say, on_stage: OnStage | None = None
    ) -> None:
        """Run the repair in the calling thread to its end; whatever happens, the last line tells it."""

        def work() -> str:
            outcome = self.repair.run(step, findings, lambda text: say(text, False), on_stage)
            self.verdict = verdict_line(outcome.verdict, lang)
            for line in (self.verdict, *outcome_lines(outcome, lang)):
                say(line, False)
            return ""

        say(last_word(work, lang), True)

    def take_back(self, say: Say, lang: str = "en") -> None:
        """Undo in the calling thread."""
        say(last_word(self.repair.undo, lang), True)

    def stage_line(self, words: Mapping[str, str], lang: str, now: float) -> str:
        """What it waits for and for how much longer; empty when it has ended."""
        if self.ended or self.stage is None:
            return ""
        what, left = said(lang, self.stage.key), self.until - now
        if not self.stage.seconds:
            return what
        if left <= 0:
            return words["stage_over"].format(what=what)
        share = 1 - left / self.stage.seconds
        text = words["stage"].format(what=what, left=f"{left:.0f} s", all=f"{self.stage.seconds:.0f} s")
        return f"{text}  ▕{bar(share, _BAR)}▏"


def last_word(work: Callable[[], str], lang: str) -> str:
    """What `work` returns, or the sentence of what it raises."""
    try:
        return work()
    except InfradocError as error:
        return in_language(str(error), lang)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


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

        def on_stage(stage: Stage) -> None:
            post(self._receiver, RepairMoved(spec, stage=stage))

        spawn(lambda: run.carry_out(step, findings, self._lang, self._sayer(spec), on_stage), "repair", must_end=True)

    def undo(self, spec: str, finding: str) -> None:
        """Take the newest change back in a thread."""
        run = self._runs[spec] = Run(spec, self.repair(spec, finding), stage=Stage("stage_back"))
        spawn(lambda: run.take_back(self._sayer(spec), self._lang), "undo", must_end=True)

    def note(self, message: RepairMoved) -> Run | None:
        """Keep what a repair said."""
        run = self._runs.get(message.spec)
        if run is not None:
            if message.text:
                run.lines.append(message.text)
            if message.stage is not None:
                run.stage, run.until = message.stage, time.time() + message.stage.seconds
            run.ended = run.ended or message.ended
        return run

    def stage_line(self, words: Mapping[str, str], spec: str | None = None) -> str:
        """What the repair of a target waits for; of no target: of whichever is under way."""
        for run in self.under_way:
            if spec in (None, run.spec):
                line = run.stage_line(words, self._lang, time.time())
                return words["stage_of"].format(what=line, target=run.spec) if line and spec is None else line
        return ""

    def stop(self) -> None:
        """End all at their next look; what is in force is taken back."""
        for run in self.under_way:
            run.repair.stop()

    def _sayer(self, spec: str) -> Say:
        return lambda text, ended: post(self._receiver, RepairMoved(spec, text, ended))
