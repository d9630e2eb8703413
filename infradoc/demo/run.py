"""One fault from healthy start to verdict, through the same session, plan and fixer as `infradoc fix`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infradoc.config import Auth, Config, Permissions, TargetConfig
from infradoc.demo.calibrate import classes
from infradoc.demo.children import Child, ChildError, start_engine, start_load
from infradoc.demo.faults import MODEL, Fault
from infradoc.load.http import Origin
from infradoc.model import Plan, VerdictName
from infradoc.remediation.journal import Journal
from infradoc.remediation.run import Outcome, Timing
from infradoc.remediation.session import Session
from infradoc.remediation.table import finding_lines, outcome_lines, plan_lines
from infradoc_rules.model import Finding

FIND_SECONDS = 60.0  # longest wait for the finding
LOAD_SECONDS = 600.0  # the load ends with the demo, not with the fix


@dataclass(frozen=True, slots=True)
class Settings:
    """How the demo is run. `fix` False: the control, which changes nothing."""

    fix: bool = True
    seed: int = 1
    model: str = MODEL
    timing: Timing | None = None  # None: the rule's own


@dataclass(frozen=True, slots=True)
class FaultResult:
    """What came of one fault. `afterwards` are findings that were there when the verdict was given."""

    fault: Fault
    finding: Finding | None
    plan: Plan | None
    outcome: Outcome | None
    afterwards: tuple[Finding, ...]
    seconds: float
    found_after: float | None
    load: tuple[str, ...] = ()  # the request classes as sent

    @property
    def verdict(self) -> VerdictName:
        """The verdict; `inconclusive` when nothing was found or nothing could be applied."""
        return self.outcome.verdict.verdict if self.outcome is not None else "inconclusive"


Print = Callable[[str], None]


def run_fault(fault: Fault, settings: Settings, out: Print, say: Print) -> FaultResult:
    """Start engine and load, wait for the finding, plan, change, judge; stop both whatever happens.

    `out` takes the result, `say` the narration. Raises ChildError when engine or load do not run, InfradocError when
    the change cannot be made.
    """
    began = time.monotonic()
    out(f"== {fault.name}: {fault.title}")
    out(f"   infradoc serve {settings.model} {' '.join(fault.serve)}")
    with tempfile.TemporaryDirectory(prefix="infradoc-demo-") as folder:
        engine, url = start_engine(settings.model, fault.serve, Path(folder))
        with engine:
            load_classes = classes(fault, url, settings.seed)
            for spec in load_classes:
                out(f"   infradoc bench --class {spec}")
            say(f"{fault.name}: engine ready on {url} after {time.monotonic() - began:.1f} s; load starts")
            client_out = Path(folder) / "client.jsonl"
            with (
                start_load(url, load_classes, settings.seed, LOAD_SECONDS, client_out) as load,
                open_session(url, Path(folder), client_out) as session,
            ):
                switch_on(fault, session, load, say)
                return replace(observe(fault, settings, session, (engine, load), began, out, say), load=load_classes)


def switch_on(fault: Fault, session: Session, load: Child, say: Print) -> None:
    """Watch the engine bear its load, then switch the fault inside it on, where it has one."""
    if fault.switch is None:
        return
    session.watch(fault.switch.after, fault.finding, on_look=lambda _: load.check())
    session.admin.switch_fault(fault.switch.name, fault.switch.parameters)
    given = ", ".join(f"{name} {value}" for name, value in fault.switch.parameters.items())
    say(f"{fault.name}: POST /admin/faults {fault.switch.name} ({given})")


def open_session(url: str, folder: Path, client_out: Path) -> Session:
    """A session on the engine as `infradoc.toml` would configure it, with a journal of its own."""
    port = Origin.parse(url).port
    target = TargetConfig(
        url=url,
        host=True,
        client=str(client_out),
        auth=Auth(admin_token_file=str(folder / f"engine-{port}.token")),
        permissions=Permissions(apply=True),
    )
    return Session("demo", Config({"demo": target}), journal=Journal(folder))


def observe(
    fault: Fault, settings: Settings, session: Session, children: Sequence[Child], began: float, out: Print, say: Print
) -> FaultResult:
    """From the running load to the verdict."""

    def check(_: float) -> None:
        for child in children:
            child.check()

    watched = session.watch(FIND_SECONDS, fault.finding, on_look=check)
    finding = next((found for found in watched.findings if found.id == fault.finding), None)
    if finding is None:
        others = ", ".join(found.id for found in watched.findings) or "nothing"
        out(f"{fault.finding} was not found in {watched.seconds:.0f} s (found: {others})")
        return FaultResult(fault, None, None, None, watched.findings, time.monotonic() - began, None)
    out(f"found after {watched.seconds:.0f} s of load")
    plan = session.plan(watched.findings, fault.finding)
    out("\n".join([*finding_lines(finding), *plan_lines(plan)]))
    outcome = judge_plan(fault, settings, session, plan, say)
    check(0.0)
    afterwards = session.monitor.findings
    if outcome is not None:
        out("\n".join(outcome_lines(outcome)))
        out("findings now: " + (", ".join(found.id for found in afterwards) or "none"))
    return FaultResult(fault, finding, plan, outcome, afterwards, time.monotonic() - began, watched.seconds)


def judge_plan(fault: Fault, settings: Settings, session: Session, plan: Plan, say: Print) -> Outcome | None:
    """Carry the plan's first step out (or none, as control) and judge; None when there is no step to take."""
    if not plan.steps:
        return None
    rule = session.rule(fault.finding)
    timing = settings.timing or replace(Timing.of(rule.verify), tail_limit=10.0)
    step = plan.steps[0] if settings.fix else None
    return session.fixer(timing, lambda text: say(f"{fault.name}: {text}")).run(rule, step)


__all__ = ["ChildError", "FaultResult", "Settings", "run_fault"]
