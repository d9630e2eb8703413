"""`infradoc fix TARGET`: plan the change for a finding; with --apply make it, verify it, take it back if no better."""

from __future__ import annotations

import argparse
import json
import sys
import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from infradoc.cli.args import Parser, duration, window
from infradoc.cli.interrupt import treat_as_interrupt
from infradoc.config import load_config
from infradoc.errors import InfradocError
from infradoc.model import Plan, PlanStep, VerdictName
from infradoc.monitor.attach import is_recording
from infradoc.remediation.data import outcome_json, plan_json
from infradoc.remediation.run import Timing
from infradoc.remediation.session import Session, Watched
from infradoc.remediation.table import change_of, finding_lines, outcome_lines, plan_lines, verdict_line
from infradoc.remediation.words import say
from infradoc_rules.model import Finding

SUMMARY = "Plan the change for a finding; --apply makes it and judges it."
EXIT_CANNOT_TELL = 30
EXIT_CANNOT_APPLY = 2
EXIT_OF: dict[VerdictName, int] = {"fixed": 0, "not_fixed": 10, "worse": 20, "inconclusive": EXIT_CANNOT_TELL}
EPILOG = """\
Without --apply nothing is changed. A change is made only on a bundled engine, through its admin API, and is taken
back when it does not help, unless --keep. Exit codes: 0 fixed, or the plan is shown, or there is nothing to fix;
10 not fixed; 20 worse; 30 inconclusive, or the target cannot be judged; 2 wrong usage, or the change needs a restart.

examples:
  infradoc fix http://localhost:8000                   the plan; nothing is changed
  infradoc fix http://localhost:8000 --apply           asks, makes the first change, judges it
  infradoc fix prod --finding kv-thrashing-preemption --apply --yes
"""


def parser() -> Parser:
    """The command's flags."""
    made = Parser(
        prog="infradoc fix", description=SUMMARY, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language of all that is said (default en)")
    made.add_argument("--json", action="store_true", help="the result as JSON on stdout, as --format json")
    made.add_argument("--format", choices=("text", "json"), default="text", help="text for people, json for programs")
    return made


def run(argv: list[str]) -> int:
    """Run the command. Raises InfradocError."""
    args = parser().parse_args(argv)
    args.json = args.json or args.format == "json"
    config = load_config(args.config)
    if is_recording(args.target, config):
        hint = say(args.lang, "give_url_fix", target=args.target)
        raise InfradocError(say(args.lang, "need_server", target=args.target, command="fix"), hint)
    if args.apply and not args.yes and not sys.stdin.isatty():  # before the watch, which would be for nothing
        raise InfradocError(say(args.lang, "no_terminal"), say(args.lang, "add_yes"))
    if args.client is not None and args.client.is_dir():
        raise InfradocError(say(args.lang, "client_folder", path=args.client), say(args.lang, "give_client_out"))
    with Session(args.target, config, client=args.client, lang=args.lang) as session:
        if args.finding:
            session.rule(args.finding)
        tell(say(args.lang, "watching", url=session.url, seconds=f"{args.window:g}"))
        watched = session.watch(args.window, args.finding)
        found = [finding for finding in watched.findings if args.finding in (None, finding.id)]
        if not found:
            return nothing_found(args, watched)
        plan = session.plan(watched.findings, args.finding, args.cooldown)
        show(args, found, plan)
        if not args.apply:
            if plan.steps:
                key = "next_apply" if session.system == "infradoc" else "next_by_hand"
                narrate(args, say(args.lang, key, target=args.target))
            emit(args, {"plan": plan_json(plan), "outcome": None})
            return 0
        return apply(args, session, plan, found)


def apply(args: Namespace, session: Session, plan: Plan, found: list[Finding]) -> int:
    """Make the first change of the plan and judge it. Raises InfradocError when it cannot be made."""
    if session.system != "infradoc":
        return needs_restart(args, session, plan)
    if not plan.steps:
        raise InfradocError(say(args.lang, "no_live_step"), say(args.lang, "plan_says"))
    step = plan.steps[0]
    confirm(args, step)
    rule = session.rule(step.finding)
    treat_as_interrupt()
    timing = replace(Timing.of(rule.verify), settle_limit=args.settle)
    given = {name: getattr(args, name) for name in ("baseline", "hold") if getattr(args, name) is not None}
    began = time.time()
    try:
        outcome = session.fixer(replace(timing, **given), tell).run(rule, step, keep=args.keep)
    except KeyboardInterrupt:  # once more while it was being taken back, or it was to be kept
        if any(change.open and change.intent.time >= began for change in session.journal.changes(session.url)):
            tell(say(args.lang, "next_undo", target=args.target))
        raise
    if not args.json:
        print("\n".join(outcome_lines(outcome, args.lang)))
        print(verdict_line(outcome.verdict, args.lang))
    if outcome.applied is not None and not outcome.undone and not outcome.applied.action.call:
        narrate(args, say(args.lang, "next_undo", target=args.target))
    emit(args, {"plan": plan_json(plan), "outcome": outcome_json(outcome)})
    return EXIT_OF[outcome.verdict.verdict]


def needs_restart(args: Namespace, session: Session, plan: Plan) -> int:
    """Say what to do by hand on a server that infradoc cannot change."""
    flag = plan.steps[0].action.flag if plan.steps else None
    what = say(args.lang, "restart_with", flag=flag) if flag else say(args.lang, "follow_plan")
    system = session.system or say(args.lang, "this_server")
    print(f"infradoc: {say(args.lang, 'takes_none', system=system, what=what)}", file=sys.stderr)
    return EXIT_CANNOT_APPLY


def confirm(args: Namespace, step: PlanStep) -> None:
    """Ask before the change. Raises InfradocError when nobody says yes."""
    if args.yes:
        return
    asked = say(args.lang, "ask_change", change=change_of(step, args.lang))
    print(asked, end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InfradocError(say(args.lang, "nothing_changed"))


def nothing_found(args: Namespace, watched: Watched) -> int:
    """Say honestly whether there is nothing, or nothing could be seen."""
    if watched.errors:
        print(f"infradoc: {say(args.lang, 'not_judged', error=watched.errors[0])}", file=sys.stderr)
        emit(args, {"plan": None, "outcome": None})
        return EXIT_CANNOT_TELL
    blind = args.finding in watched.unknown
    key = "blind" if blind else "not_there" if args.finding else "nothing_found"
    text = say(args.lang, key, id=args.finding, seconds=f"{watched.seconds:.0f}")
    print(text, file=sys.stderr if args.json else sys.stdout)
    emit(args, {"plan": None, "outcome": None})
    return EXIT_CANNOT_TELL if blind else 0


def show(args: Namespace, found: list[Finding], plan: Plan) -> None:
    """Findings and plan as text."""
    if args.json:
        return
    for finding in found:
        print("\n".join(finding_lines(finding, args.lang)))
    print("\n".join(plan_lines(plan, args.lang)), flush=True)


def emit(args: Namespace, data: dict[str, Any]) -> None:
    """The result as JSON, when asked for."""
    if args.json:
        print(json.dumps({"schema": "infradoc.fix/v1", **data}, ensure_ascii=False, indent=1))


def narrate(args: Namespace, text: str) -> None:
    """What to do next; beside the result, not in it."""
    print(text, file=sys.stderr if args.json else sys.stdout)


def tell(text: str) -> None:
    """Narration. A change that is made is judged to the end, also when nobody listens any more (`2>&1 | head`)."""
    with suppress(OSError):
        print(f"infradoc fix: {text}", file=sys.stderr, flush=True)
