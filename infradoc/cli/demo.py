"""`infradoc demo`: a real engine, four faults in turn: found, fixed live, verified at the client."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infradoc import __version__
from infradoc.cli.args import Parser
from infradoc.cli.engine import INSTALL, missing_packages
from infradoc.cli.interrupt import treat_as_interrupt
from infradoc.cli.output import check_writable
from infradoc.demo.faults import FOUR, MODEL, SCENES
from infradoc.demo.run import FaultResult, Settings, run_fault
from infradoc.errors import InfradocError
from infradoc.model import VerdictName
from infradoc.remediation.data import outcome_json, plan_json

SUMMARY = "Watch four real faults being found, fixed live and verified."
EXIT_OF: dict[VerdictName, int] = {"fixed": 0, "not_fixed": 10, "worse": 20, "inconclusive": 30}
WORST: tuple[VerdictName, ...] = ("worse", "inconclusive", "not_fixed", "fixed")
EPILOG = """\
Out of memory, fragmentation (blocks too large, then blocks that leak), tokenization, truncation; --only kv plays KV
thrashing. The last line is the verdict over all faults. Exit codes: 0 all fixed, 10 not fixed, 20 worse, 30
inconclusive or not found. With --no-fix (the control) nothing is changed: then 0 means that every fault was found and
judged not_fixed, which is what must happen, and the last line is `verdict: not_fixed`; any other verdict gives 1.

examples:
  infradoc demo                    all four, under 6 minutes
  infradoc demo --only oom         one of them
  infradoc demo --no-fix           the control
"""


def parser() -> Parser:
    """The command's flags."""
    made = Parser(
        prog="infradoc demo", description=SUMMARY, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", choices=tuple(SCENES), metavar="NAME", help=f"one of {', '.join(SCENES)}")
    made.add_argument("--no-fix", action="store_true", help="control: find, plan and judge, but change nothing")
    made.add_argument("--model", default=MODEL, help=f"model to serve (default {MODEL})")
    made.add_argument("--seed", type=int, default=1, help="seed of the load (default 1)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    return made


def run(argv: list[str]) -> int:
    """Run the command. Raises InfradocError."""
    args = parser().parse_args(argv)
    if missing := missing_packages():
        raise InfradocError(f"The bundled engine is not installed ({', '.join(missing)} missing).", f"Run: {INSTALL}")
    if args.json is not None:
        check_writable(args.json, "--json")
    treat_as_interrupt()
    settings = Settings(fix=not args.no_fix, seed=args.seed, model=args.model)
    began = time.monotonic()
    say("the engines compute with 1 thread, so that load and measurement beside them have a core of their own")
    results = []
    for fault in [fault for name in ([args.only] if args.only else FOUR) for fault in SCENES[name]]:
        results.append(run_fault(fault, settings, out, say))
        out(f"{fault.name}: {results[-1].verdict} ({results[-1].seconds:.0f} s)\n")
    return finish(args, results, time.monotonic() - began)


def finish(args: Namespace, results: Sequence[FaultResult], seconds: float) -> int:
    """Write the JSON, print the verdict over all as last line, and give the exit code."""
    verdict = overall([result.verdict for result in results])
    if args.json is not None:
        write_json(args.json, args, results, verdict, seconds)
    say(f"{seconds:.0f} s in total")
    print(f"verdict: {verdict}", flush=True)
    if args.no_fix:
        return 0 if all(result.verdict == "not_fixed" for result in results) else 1
    return EXIT_OF[verdict]


def overall(verdicts: Sequence[VerdictName]) -> VerdictName:
    """The worst of several verdicts."""
    return next(name for name in WORST if name in verdicts)


def write_json(
    path: Path, args: Namespace, results: Sequence[FaultResult], verdict: VerdictName, seconds: float
) -> None:
    """The result with what it was measured on. Raises InfradocError."""
    data = {
        "schema": "infradoc.demo/v1",
        "verdict": verdict,
        "control": bool(args.no_fix),
        "seconds": round(seconds, 1),
        "seed": args.seed,
        "model": args.model,
        "versions": {"infradoc": __version__, "python": platform.python_version(), "platform": platform.platform()},
        "cores": os.cpu_count(),
        "faults": [fault_json(result) for result in results],
    }
    try:
        path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InfradocError(f"Cannot write {path}: {error.strerror}.", "Give --json another file.") from error


def fault_json(result: FaultResult) -> dict[str, Any]:
    """One fault as data."""
    finding = result.finding
    return {
        "name": result.fault.name,
        "verdict": result.verdict,
        "seconds": round(result.seconds, 1),
        "serve": list(result.fault.serve),
        "load": list(result.load),
        "switch": None if result.fault.switch is None else asdict(result.fault.switch),
        "found_after_seconds": None if result.found_after is None else round(result.found_after, 1),
        "finding": None
        if finding is None
        else {
            "id": finding.id,
            "severity": finding.severity,
            "confidence": finding.confidence,
            "evidence": [{"text": item.text, "signal": item.signal, "value": item.value} for item in finding.evidence],
        },
        "plan": None if result.plan is None else plan_json(result.plan),
        "outcome": None if result.outcome is None else outcome_json(result.outcome),
        "findings_afterwards": [found.id for found in result.afterwards],
    }


def out(text: str) -> None:
    """A part of the result."""
    print(text, flush=True)


def say(text: str) -> None:
    """Narration."""
    print(f"infradoc demo: {text}", file=sys.stderr, flush=True)
