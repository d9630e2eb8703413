"""`infradoc record TARGET... -o FILE`: keep what a server shows, for a diagnosis later or elsewhere."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from infradoc.cli.args import Parser, duration, window
from infradoc.config import load_config
from infradoc.errors import InfradocError, visible
from infradoc.monitor.attach import Target, attach, is_recording
from infradoc.plurals import counted

if TYPE_CHECKING:
    from infradoc.monitor.recorder import Recorder
    from infradoc.sources.writer import RecordingWriter

SUMMARY = "Keep what a server shows, to diagnose it later or elsewhere."
HELP = """\
Writes a folder, or an archive when FILE ends in .tar.gz: pages of /metrics, host figures, client and log lines, the
launch command; keys and passwords in log and command are taken out. Several targets: one recording each, named
FILE-TARGET. Ends after --for, or at Ctrl-C.

examples:
  infradoc record http://localhost:8000 -o incident.tar.gz --for 2m
  infradoc record prod spare -o friday.tar.gz        writes friday-prod.tar.gz and friday-spare.tar.gz
"""


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc record", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("targets", nargs="+", metavar="TARGET", help="a name from infradoc.toml, or a URL")
    made.add_argument("-o", "--out", required=True, type=Path, metavar="FILE", help="folder or .tar.gz to write")
    made.add_argument("--for", dest="seconds", type=window, metavar="2m", help="how long (default: until Ctrl-C)")
    made.add_argument("--every", type=duration, default=1.0, metavar="1s", help="sampling period (default 1s)")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    return made


def run(argv: list[str]) -> int:
    """Record until told to stop; 0 when at least one page was kept. Raises InfradocError."""
    args = parser().parse_args(argv)
    if args.every < 0.1:
        raise InfradocError("--every must be at least 100ms.", "A scrape costs the server time, too.")
    config = load_config(args.config)
    for spec in args.targets:
        if is_recording(spec, config):
            raise InfradocError(
                f"{spec} is a file or folder, not a server.", "Give a URL or a name from infradoc.toml."
            )
    paths = out_paths(args.out, args.targets)
    targets = [attach(spec, config, args.every) for spec in args.targets]
    return _record(targets, paths, args.seconds, args.every)


def out_paths(out: Path, specs: list[str]) -> list[Path]:
    """One path per target: `out` itself for a single one, else with the target's name before the ending.

    Raises InfradocError when two would be the same: the later would replace the earlier.
    """
    if len(specs) == 1:
        return [out]
    ending = next((end for end in (".tar.gz", ".tgz") if out.name.endswith(end)), "")
    stem = out.name.removesuffix(ending)
    names = [re.sub(r"[^A-Za-z0-9._-]+", "_", spec.split("://")[-1]).strip("_") for spec in specs]
    twins = sorted({spec for spec, name in zip(specs, names, strict=True) if names.count(name) > 1})
    if twins:
        raise InfradocError(
            f"The recordings of {' and '.join(twins)} would have one name.", "Record each target once, or one by one."
        )
    return [out.with_name(f"{stem}-{name}{ending}") for name in names]


def _record(targets: list[Target], paths: list[Path], seconds: float | None, period: float) -> int:
    from infradoc.monitor.recorder import Recorder, record
    from infradoc.sources.writer import RecordingWriter

    stop = threading.Event()

    def finish(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    with ExitStack() as cleanup:  # what was written is finished and packed, whatever ends the recording
        for number in (signal.SIGINT, signal.SIGTERM):
            cleanup.callback(signal.signal, number, signal.signal(number, finish))
        for target in targets:
            cleanup.callback(target.close)
        writers = [cleanup.enter_context(RecordingWriter(path)) for path in paths]
        recorders = [Recorder(target, writer) for target, writer in zip(targets, writers, strict=True)]
        if sys.stderr.isatty():
            print(f"infradoc record: {', '.join(t.name for t in targets)}; Ctrl-C ends it.", file=sys.stderr)
        record(recorders, seconds, period, stop.is_set, stop.wait)
        for recorder, writer in zip(recorders, writers, strict=True):
            if not is_worth_keeping(recorder, writer):
                writer.discard()
    kept = 0
    for recorder, writer in zip(recorders, writers, strict=True):
        kept += recorder.looks - recorder.failed
        print(f"infradoc record: {outcome(recorder, writer)}", file=sys.stderr)
    return 0 if kept else 30


def is_worth_keeping(recorder: Recorder, writer: RecordingWriter) -> bool:
    """Whether there is a page, or the log or the clients of a server that gave none."""
    return recorder.looks > recorder.failed or any(writer.rows.get(name) for name in ("server.log", "client.jsonl"))


def outcome(recorder: Recorder, writer: RecordingWriter) -> str:
    """What was kept, what failed, and what to do with it."""
    good = recorder.looks - recorder.failed
    note = f"; {recorder.failed} failed: {visible(recorder.last_error)}" if recorder.failed else ""
    if not is_worth_keeping(recorder, writer):
        return f"{writer.out} was not written: no page came{note}"
    return f"{writer.out}: {counted(good, 'page')}{note}\n  next: infradoc diagnose {writer.out}"
