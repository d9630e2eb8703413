"""`infradoc fix TARGET`: plan the change for a finding; with --apply make it, verify it, take it back if no better."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from infradoc.cli.args import Parser, duration, window
from infradoc.cli.interrupt import treat_as_interrupt
from infradoc.config import load_config
from infradoc.errors import InfradocError
from infradoc.model import Plan, PlanStep, VerdictName
from infradoc.monitor.attach import is_recording
from infradoc.remediation.run import Timing
from infradoc.remediation.session import Session, Watched
from infradoc.remediation.table import change_of, finding_lines, outcome_json, outcome_lines, plan_json, plan_lines
from infradoc_rules.model import Finding

SUMMARY = "Plan the change for a finding; with --apply make it, verify it, or undo it."
EXIT_CANNOT_TELL = 30
EXIT_CANNOT_APPLY = 2
EXIT_OF: dict[VerdictName, int] = {"fixed": 0, "not_fixed": 10, "worse": 20, "inconclusive": EXIT_CANNOT_TELL}
EPILOG = """\
Without --apply nothing is changed. A change is made only on a bundled engine, through its admin API, and is taken
back when it does not help, unless --keep. Exit codes: 0 fixed, or the plan is shown, or there is nothing to fix;
10 not fixed; 20 worse; 30 inconclusive, or the target cannot be judged; 2 wrong usage, or the change needs a restart.
"""


def parser() -> Parser:
    """The command's flags."""
    made = Parser(prog="infradoc fix", description=SUMMARY, epilog=EPILOG)
    made.add_argument("target", metavar="TARGET", help="name from infradoc.toml or URL of a server")
    made.add_argument("--finding", metavar="ID", help="fix this finding only")
    made.add_argument("--apply", action="store_true", help="make the first change of the plan and verify it")
    made.add_argument("--yes", action="store_true", help="do not ask before the change")
    made.add_argument("--keep", action="store_true", help="leave the change in force even when it is no better")
    made.add_argument("--window", type=window, default=30.0, help="how long to watch for findings (default 30s)")
    made.add_argument("--baseline", type=window, help="measure so long before the change (default 15s)")
    made.add_argument("--hold", type=window, help="measure so long after it (default 20s)")
    made.add_argument("--settle", type=window, default=60.0, help="longest wait for old requests (default 60s)")
    made.add_argument("--cooldown", type=duration, default=300.0, help="least time between changes of one knob (5m)")
    made.add_argument("--client", type=Path, metavar="FILE", help="client measurements (infradoc bench --client-out)")
    made.add_argument("--config", metavar="FILE", help="infradoc.toml to use")
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language of findings")
    made.add_argument("--json", action="store_true", help="the result as JSON on stdout, as --format json")
    made.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")
    return made


def run(argv: list[str]) -> int:
    """Run the command. Raises InfradocError."""
    args = parser().parse_args(argv)
    args.json = args.json or args.format == "json"
    config = load_config(args.config)
    if is_recording(args.target, config):
        hint = f"Give the server's URL; `infradoc diagnose {args.target}` reads what was kept."
        raise InfradocError(f"{args.target} is a file or folder: fix needs a live server.", hint)
    if args.apply and not args.yes and not sys.stdin.isatty():  # before the watch, which would be for nothing
        raise InfradocError("--apply needs a person to confirm, and there is no terminal.", "Add --yes.")
    if args.client is not None and args.client.is_dir():
        raise InfradocError(f"--client {args.client} is a folder.", "Give the file that bench --client-out writes.")
    with Session(args.target, config, client=args.client, lang=args.lang) as session:
        if args.finding:
            session.rule(args.finding)
        say(f"watching {session.url} for at most {args.window:g} s")
        watched = session.watch(args.window, args.finding)
        found = [finding for finding in watched.findings if args.finding in (None, finding.id)]
        if not found:
            return nothing_found(args, watched)
        plan = session.plan(watched.findings, args.finding, args.cooldown)
        show(args, found, plan)
        if not args.apply:
            if plan.steps and session.system == "infradoc":
                narrate(args, f"next: infradoc fix {args.target} --apply   makes the first change and judges it")
            emit(args, {"plan": plan_json(plan), "outcome": None})
            return 0
        return apply(args, session, plan, found)


def apply(args: Namespace, session: Session, plan: Plan, found: list[Finding]) -> int:
    """Make the first change of the plan and judge it. Raises InfradocError when it cannot be made."""
    if session.system != "infradoc":
        return needs_restart(session, plan)
    if not plan.steps:
        raise InfradocError("No change can be applied live.", "The plan says why each was left out.")
    step = plan.steps[0]
    confirm(args, step)
    rule = session.rule(step.finding)
    treat_as_interrupt()
    timing = replace(Timing.of(rule.verify), settle_limit=args.settle)
    given = {name: getattr(args, name) for name in ("baseline", "hold") if getattr(args, name) is not None}
    outcome = session.fixer(replace(timing, **given), say).run(rule, step, keep=args.keep)
    if not args.json:
        print("\n".join(outcome_lines(outcome)))
        print(f"verdict: {outcome.verdict.verdict}")
    if outcome.applied is not None and not outcome.undone and not outcome.applied.action.call:
        narrate(args, f"to take it back: infradoc undo {args.target}")
    emit(args, {"plan": plan_json(plan), "outcome": outcome_json(outcome)})
    return EXIT_OF[outcome.verdict.verdict]


def needs_restart(session: Session, plan: Plan) -> int:
    """Say what to do by hand on a server that infradoc cannot change."""
    flag = plan.steps[0].action.flag if plan.steps else None
    what = f"Restart it with {flag}" if flag else "Follow the plan by hand"
    print(f"infradoc: {session.system or 'This server'} takes no change while it runs. {what}.", file=sys.stderr)
    return EXIT_CANNOT_APPLY


def confirm(args: Namespace, step: PlanStep) -> None:
    """Ask before the change. Raises InfradocError when nobody says yes."""
    if args.yes:
        return
    print(f"Make this change now: {change_of(step)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InfradocError("Nothing was changed.")


def nothing_found(args: Namespace, watched: Watched) -> int:
    """Say honestly whether there is nothing, or nothing could be seen."""
    if watched.errors:
        print(f"infradoc: The target cannot be judged: {watched.errors[0]}", file=sys.stderr)
        emit(args, {"plan": None, "outcome": None})
        return EXIT_CANNOT_TELL
    blind = args.finding in watched.unknown
    what = args.finding or "Nothing"
    text = f"{what} was found in {watched.seconds:.0f} s." if not args.finding else f"{what} is not there now."
    if blind:
        text = f"{what} cannot be judged on this target: signals that it needs are missing."
    print(text, file=sys.stderr if args.json else sys.stdout)
    emit(args, {"plan": None, "outcome": None})
    return EXIT_CANNOT_TELL if blind else 0


def show(args: Namespace, found: list[Finding], plan: Plan) -> None:
    """Findings and plan as text."""
    if args.json:
        return
    for finding in found:
        print("\n".join(finding_lines(finding)))
    print("\n".join(plan_lines(plan)), flush=True)


def emit(args: Namespace, data: dict[str, Any]) -> None:
    """The result as JSON, when asked for."""
    if args.json:
        print(json.dumps({"schema": "infradoc.fix/v1", **data}, ensure_ascii=False, indent=1))


def narrate(args: Namespace, text: str) -> None:
    """What to do next; beside the result, not in it."""
    print(text, file=sys.stderr if args.json else sys.stdout)


def say(text: str) -> None:
    """Narration."""
    print(f"infradoc fix: {text}", file=sys.stderr, flush=True)
