"""`infradoc watch [TARGET...]`: watch for good, with alerts, history and a metrics page."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from infradoc.catalog import load_rules
from infradoc.cli.args import Parser, duration
from infradoc.config import Config, find_config, load_config
from infradoc.durations import spoken
from infradoc.errors import InfradocError, visible
from infradoc.report.words import LANGUAGES
from infradoc.service.config import WatchConfig, parse_listen, read_watch
from infradoc.service.history import HISTORY_NAME, History
from infradoc.service.journal_lines import Lines
from infradoc.service.systemd import unit_text

SUMMARY = "Watch servers for good, with alerts and a history."
HELP = """\
Without TARGET: [watch] targets of infradoc.toml, or every target in it.
SIGTERM and Ctrl-C end it; SIGHUP reads infradoc.toml again. /metrics, /health, /findings and /history are served on
127.0.0.1:9464 unless [watch] listen or --listen says otherwise. --unit prints a system unit for
systemd: sudo systemctl daemon-reload, then sudo systemctl enable --now infradoc.

examples:
  infradoc watch http://localhost:8000
  infradoc watch --history 24h
  infradoc watch --unit | sudo tee /etc/systemd/system/infradoc.service
"""


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc watch", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("targets", nargs="*", metavar="TARGET")
    made.add_argument("--listen", metavar="HOST:PORT", help="where to serve its own pages; off for nowhere")
    made.add_argument("--lang", choices=LANGUAGES, help="language of the texts")
    made.add_argument("--json", action="store_true", help="say what happens as JSON lines")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    made.add_argument("--history", type=duration, metavar="24h", help="only print what was found and changed since")
    made.add_argument("--unit", action="store_true", help="only print a systemd unit for this installation")
    return made


def run(argv: list[str]) -> int:
    """Run the command. Raises InfradocError for wrong usage and for what cannot be used."""
    args = parser().parse_args(argv)
    if args.unit:
        print(unit_text(find_config(args.config)), end="")
        return 0

    path = find_config(args.config)  # once: a file that is gone at a reload is a fault, not "no sinks any more"

    def load() -> tuple[Config, WatchConfig]:
        config = load_config(str(path) if path is not None else None)
        return config, _with_flags(read_watch(config, args.targets), args)

    if args.history is not None:
        return _print_history(args)
    from infradoc.service.watch import Watch

    early: list[int] = []  # the start takes seconds, and by default a SIGHUP ends the process
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    watch = Watch(load, load_rules(), Lines(args.json))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watch.ask_to_stop())
    signal.signal(signal.SIGHUP, lambda *_: watch.ask_to_reload())
    if early:
        watch.ask_to_reload()
    watch.run()
    return 0


def _with_flags(settings: WatchConfig, args: argparse.Namespace) -> WatchConfig:
    if args.lang:
        settings = replace(settings, lang=args.lang)
    if args.listen is not None:
        try:
            settings = replace(settings, listen=parse_listen(args.listen))
        except ValueError:
            raise InfradocError(f"--listen {args.listen!r} is no address.", "Write HOST:PORT, or off.") from None
    return settings


def _print_history(args: argparse.Namespace) -> int:
    history = _history(load_config(args.config))
    begin, wanted = time.time() - args.history, set(args.targets)

    def chosen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if not wanted or row["target"] in wanted]

    try:
        found, changed = chosen(history.findings(begin)), chosen(history.changes(begin))
    finally:
        history.close()
    if args.json:
        json.dump({"findings": found, "changes": changed}, sys.stdout, ensure_ascii=False, indent=1)
        print()
        return 0
    for line in _history_lines(found, changed):
        print(visible(line))
    if not found and not changed:
        print(f"No finding and no applied change in the last {spoken(args.history)}.", file=sys.stderr)
    return 0


def _history(config: Config) -> History:
    from infradoc.alerts.config import alerts_config
    from infradoc.alerts.database import state_folder

    named = config.watch.get("history")
    folder = state_folder(alerts_config(config).state)
    path = config.path_at("watch.history", str(named)) if named else folder / HISTORY_NAME
    if not path.is_file():
        raise InfradocError(f"There is no history at {path}.", "It is written while `infradoc watch` runs.")
    return History(path, float("inf"))


def _history_lines(found: list[dict[str, Any]], changed: list[dict[str, Any]]) -> list[str]:
    """Findings and applied changes in one list, the newest first: what was done stands beside what it was done for."""
    lines = []
    for row in found:
        ended = _clock(row["ended"]) if row["ended"] else "holds"
        text = f"{_clock(row['began'])}  {ended:<20}  {row['severity']:<8}  {row['target']}  {row['id']}"
        lines.append((row["began"], text))
    for row in changed:
        lines.append((row["time"], f"{_clock(row['time'])}  {'':<20}  {'change':<8}  {row['target']}  {row['what']}"))
    return [text for _, text in sorted(lines, key=lambda line: line[0], reverse=True)]


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
