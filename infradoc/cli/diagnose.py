"""`infradoc diagnose TARGET...`: watch, judge, report."""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infradoc.catalog import load_rules
from infradoc.cli.args import Parser, moment, window
from infradoc.cli.next_steps import after_diagnosis
from infradoc.config import Config, load_config
from infradoc.errors import InfradocError, visible
from infradoc.report.model import EXIT_CODES, SCHEMA_MANY, Report, exit_code
from infradoc.report.words import LANGUAGES
from infradoc_rules.catalog import Catalog

if TYPE_CHECKING:
    from infradoc.report.plots import Plot

SUMMARY = "Find the cause, its evidence and the change that helps."
HELP = """\
TARGET is a name from infradoc.toml, the URL of a server or of its /metrics, a recording (folder or .tar.gz), or what
you have when something broke: a folder, file or archive of logs, launch commands, nvidia-smi output, metrics pages;
`-` reads a paste from standard input. Several are judged one by one, and so are the incidents of a pile that has a
folder for each; else one folder is read as one incident, so name the files of different servers apart.
Exit codes: 0 healthy, 10 warning, 20 critical, 30 cannot tell, 2 usage, 1 internal error; the worst of several.

examples:
  infradoc diagnose http://localhost:8000
  infradoc diagnose incident/ --lang zh
  infradoc diagnose server-a/ server-b/
  kubectl logs vllm-0 --previous | infradoc diagnose -
"""
EXIT_USAGE = 2
FORMATS = ("rich", "json", "markdown", "html")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc diagnose", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("targets", nargs="+", metavar="TARGET")
    made.add_argument("--window", type=window, default=30.0, metavar="30s", help="how long to watch a live server")
    made.add_argument(
        "--since", type=moment, metavar="T", help="recordings: from this time on (Unix seconds or ISO 8601)"
    )
    made.add_argument("--until", type=moment, metavar="T", help="recordings: up to this time")
    made.add_argument(
        "--format",
        choices=FORMATS,
        default="rich",
        help="rich for people, json for programs; markdown for issues and html with plots hide hosts and prompts",
    )
    made.add_argument("--unredacted", action="store_true", help="markdown and html: leave hosts and prompts in")
    made.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    made.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the texts")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    return made


def run(argv: list[str]) -> int:
    """Run the command. Raises InfradocError for wrong usage."""
    gc.set_threshold(100_000, 20, 20)  # loading rules makes many objects and no cycles: a twentieth of a short run
    args = parser().parse_args(argv)
    config = load_config(args.config)
    catalog = load_rules()
    plan = [_Job(spec, config) for spec in args.targets]
    done = [(job, report) for job in plan if (report := _report(job, args, catalog, alone=len(plan) == 1)) is not None]
    reports = [report for _, report in done]
    if not reports:
        return EXIT_USAGE
    write(reports, args.format, args.lang, [job.plots for job, _ in done], args.unredacted, many=len(plan) > 1)
    if args.format == "rich":
        _say_next([after_diagnosis(job.spec, report, job.live, args.lang) for job, report in done])
    code = exit_code(reports)
    return code if len(done) == len(plan) or code == EXIT_CODES["unhealthy"] else EXIT_CODES["unknown"]


def _say_next(steps: Sequence[str | None]) -> None:
    """What to type next, after all reports."""
    lines = [step for step in steps if step]
    if lines:
        print("\n".join(["", *lines]))


def _report(job: _Job, args: argparse.Namespace, catalog: Catalog, alone: bool) -> Report | None:
    """A target's report. Of several targets one that cannot be read is named on stderr, and the others go on: None."""
    try:
        return job.report(args, catalog)
    except InfradocError as error:
        if alone:
            raise
        print(f"infradoc: {visible(str(error))}", file=sys.stderr)
        return None


class _Job:
    """One target; the spec is checked before any target is watched, so that a typing error costs no time."""

    def __init__(self, spec: str, config: Config) -> None:
        self.spec = spec
        self._config = config
        self.plots: list[Plot] = []
        self._recorded = False
        self._artefacts = spec == "-" or _holds_artefacts(spec, config)
        if self._artefacts:
            return
        # Imported late: what watches a server takes longer to load than a post-mortem takes.
        from infradoc.monitor.attach import is_recording

        self._recorded = is_recording(spec, config)
        if self._recorded:
            from infradoc.sources.archive import RecordingFiles

            RecordingFiles(Path(spec).expanduser())
        else:
            from infradoc.monitor.attach import target_config

            target_config(spec, config)

    @property
    def live(self) -> bool:
        """Whether it is a server that answers now."""
        return not (self._artefacts or self._recorded)

    def report(self, args: argparse.Namespace, catalog: Catalog) -> Report:
        if self._artefacts:
            if args.since is not None or args.until is not None:
                raise InfradocError(f"--since and --until are for recordings; {self.spec} is none.", "Leave them out.")
            from infradoc.report.post_mortem import diagnose_artefacts

            path = None if self.spec == "-" else Path(self.spec).expanduser()
            return diagnose_artefacts(path, catalog, args.lang, self._wanted(args))
        if self._recorded:
            return self._recording(args, catalog)
        from infradoc.monitor.attach import attach
        from infradoc.report.diagnosis import diagnose_live

        if args.since is not None or args.until is not None:
            raise InfradocError(f"{self.spec} is live; --since and --until are for recordings.", "Leave them out.")
        progress = _Progress(self.spec, args.window) if sys.stderr.isatty() else None
        try:
            return diagnose_live(
                attach(self.spec, self._config), catalog, args.window, args.lang, progress, self._wanted(args)
            )
        finally:
            if progress is not None:
                progress.close()

    def _wanted(self, args: argparse.Namespace) -> list[Plot] | None:
        """Where to put plots; None for the formats that draw none."""
        return self.plots if args.format == "html" else None

    def _recording(self, args: argparse.Namespace, catalog: Catalog) -> Report:
        """What the recording shows; of a server that never answered, what its log says."""
        from infradoc.report.diagnosis import diagnose_recording

        path = Path(self.spec).expanduser()
        report = diagnose_recording(path, catalog, args.lang, args.since, args.until, self._wanted(args))
        if report["status"] != "unknown" or not path.is_dir():
            return report
        from infradoc.artefacts.open import ArtefactError
        from infradoc.report.post_mortem import diagnose_logs

        try:
            past = diagnose_logs(path, catalog, args.lang)
        except ArtefactError:
            return report
        return past if past["findings"] else report


def _holds_artefacts(spec: str, config: Config) -> bool:
    """Whether TARGET is there and is no recording; names of the configuration come first."""
    if not spec.strip() or spec in config.targets or "://" in spec:
        return False
    from infradoc.sources.archive import holds_recording

    try:
        path = Path(spec).expanduser()
        return path.exists() and not holds_recording(path)
    except (OSError, ValueError, RuntimeError) as error:  # too long a name, a null byte, the home of nobody
        why = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise InfradocError(f"{spec[:80]!r} is no usable path: {why}.", "Check it.") from error


class _Progress:
    """One line on the terminal that says how far the watch is; never on stdout."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._start = time.monotonic()

    def __call__(self, found: int) -> None:
        gone = min(self._seconds, time.monotonic() - self._start)
        print(
            f"\r\x1b[Kwatching {self._name}: {gone:.0f} of {self._seconds:.0f} s, {found} firing",
            end="",
            file=sys.stderr,
        )
        sys.stderr.flush()

    def close(self) -> None:
        print("\r\x1b[K", end="", file=sys.stderr)
        sys.stderr.flush()


def write(
    reports: list[Report],
    style: str,
    lang: str,
    plots: Sequence[Sequence[Plot]] = (),
    unredacted: bool = False,
    many: bool = False,
) -> None:
    """Print the reports on stdout; many: of several targets, so that data keep their form when one report is left.

    Those for people show control characters instead of sending them to the terminal."""
    from infradoc.sources.secrets import clean_report

    reports = [clean_report(report) for report in reports]  # a watched server's log and a recording hold keys as well
    if style != "json":
        reports = [_visible(report) for report in reports]
    if style in ("markdown", "html") and not unredacted:
        from infradoc.report.redact import redacted

        reports = [redacted(report) for report in reports]
    if style == "json":
        data: Any = reports[0] if len(reports) == 1 and not many else {"schema": SCHEMA_MANY, "reports": reports}
        data = _finite(data)
        json.dump(data, sys.stdout, ensure_ascii=not _unicode(), indent=1)
        print()
    elif style == "markdown":
        from infradoc.report.markdown import to_markdown

        print("\n".join(to_markdown(report, lang) for report in reports), end="")
    elif style == "html":
        from infradoc.report.html.page import to_html

        page = to_html(reports, plots, lang, redacted=not unredacted)
        print(page if _unicode() else page.encode("ascii", "xmlcharrefreplace").decode(), end="")
    else:
        from infradoc.report.text import make_console, print_report

        console = make_console()
        for place, report in enumerate(reports):
            if place:
                console.print()
            print_report(report, lang, console)


def _finite(value: Any) -> Any:
    """`value` with null for what JSON has no number for: a page may show +Inf and NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return {key: _finite(item) for key, item in value.items()} if isinstance(value, dict) else value


def _unicode() -> bool:
    """Whether stdout takes any character; data and pages have ways to say them without."""
    return (getattr(sys.stdout, "encoding", None) or "utf").lower().startswith("utf")


def _visible(value: Any) -> Any:
    """`value` with every text in it made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return {key: _visible(item) for key, item in value.items()} if isinstance(value, dict) else value
