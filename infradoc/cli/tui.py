"""`infradoc tui TARGET...`: the resource board on the terminal, from all targets down to one fix."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infradoc.cli.args import Parser, duration, window
from infradoc.config import Config, load_config
from infradoc.errors import InfradocError

if TYPE_CHECKING:
    from infradoc.fleet.model import View
    from infradoc.tui.app import DoctorApp

SUMMARY = "Watch targets on the terminal; open a finding, apply its fix."
HELP = """\
TARGET is a name from infradoc.toml, the URL of a server or of its /metrics, or a recording (folder or .tar.gz); none:
all targets of infradoc.toml. Press ? for the keys. A change is made only after a typed word, with the permissions
that `infradoc fix` has.

examples:
  infradoc tui http://localhost:8000
  infradoc tui incident.tar.gz --lang zh
"""


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc tui", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("targets", nargs="*", metavar="TARGET")
    made.add_argument("--every", type=duration, default=1.0, metavar="1s", help="sampling period (default 1s)")
    made.add_argument("--baseline", type=window, metavar="15s", help="measure so long before a change")
    made.add_argument("--hold", type=window, metavar="20s", help="measure so long after it")
    made.add_argument("--export-dir", type=Path, default=Path(), metavar="DIR", help="where `e` writes (default: here)")
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the texts")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    return made


def run(argv: list[str]) -> int:
    """Show the screen until it is left. Raises InfradocError for wrong usage."""
    args = parser().parse_args(argv)
    config = load_config(args.config)
    specs = list(dict.fromkeys(args.targets or config.targets))
    if not specs:
        raise InfradocError("There is no TARGET and no infradoc.toml with one.", "Give the URL of a server.")
    if args.every < 0.1:
        raise InfradocError("--every must be at least 100ms.", "A scrape costs the server time, too.")
    in_browser = "TEXTUAL_DRIVER" in os.environ  # textual-serve speaks to the page itself
    if not in_browser and not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual draws on stderr
        hint = f"For text: infradoc diagnose {specs[0]}."
        raise InfradocError(
            "infradoc tui needs a terminal for its input and its standard error, on which it draws.", hint
        )
    from infradoc.tui.collector import calm_collector

    views = make_views(specs, config, args)
    try:
        for view in views:
            view.start()
        app = make_app(views, config, args)
        with calm_collector():
            app.run()
        return app.return_code or 0
    finally:
        for view in views:
            view.stop(0.0)


def make_views(specs: list[str], config: Config, args: argparse.Namespace) -> list[View]:
    """Live targets and recordings. Raises TargetError, ConfigError, RecordingError before anything is asked."""
    from infradoc.catalog import load_rules
    from infradoc.fleet.replaying import ReplayView
    from infradoc.fleet.watcher import TargetWatcher
    from infradoc.monitor.attach import is_recording

    catalog = load_rules()
    views: list[View] = []
    for spec in specs:
        if is_recording(spec, config):
            views.append(ReplayView(Path(spec).expanduser(), catalog, args.lang))
        else:
            views.append(TargetWatcher(spec, config, catalog, args.lang, args.every))
    return views


def make_app(views: list[View], config: Config, args: argparse.Namespace) -> DoctorApp:
    """The application over the views."""
    from infradoc.fleet.repair import Options
    from infradoc.tui.app import DoctorApp

    options = Options(args.baseline, args.hold)
    return DoctorApp(views, config, lang=args.lang, options=options, export_dir=args.export_dir, take_signals=True)
