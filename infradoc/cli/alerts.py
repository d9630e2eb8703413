"""`infradoc alerts test|list|replay|silence`: look after what goes out to people and pagers."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infradoc.cli.args import Parser, lasting
from infradoc.config import Config, load_config
from infradoc.errors import InfradocError, visible
from infradoc.plurals import counted

if TYPE_CHECKING:
    from infradoc.alerts.config import AlertsConfig
    from infradoc.alerts.database import Database
    from infradoc.alerts.sinks.base import Outcome, Sink

SUMMARY = "Test the sinks, see what is open and unsent, send again, silence."
HELP = """\
test     sends a notification that says it is a test, now, and tells what came back
list     incidents, silences, and per sink: what waits, what was given up, whether it is switched off and why
replay   queues again what was given up (or one message by its id), and switches on again what was switched off
silence  [add] MATCHER... --for 2h | list | expire ID     MATCHER: target=prod, finding=~kv-.*, severity!=critical

Sinks are [alerts.sinks.NAME] tables of infradoc.toml.

examples:
  infradoc alerts test
  infradoc alerts silence add target=prod --for 2h --comment maintenance
"""
KEEPS_OPEN = ("pagerduty", "alertmanager")  # there a test would stay open until somebody closes it


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc alerts", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = made.add_subparsers(dest="part", required=True, metavar="test|list|replay|silence", parser_class=Parser)
    test = _part(parts, "test", "send a marked test notification now", _test)
    test.add_argument("sink", nargs="?", metavar="SINK", help="only this one (default: all)")
    listing = _part(parts, "list", "incidents, silences, sinks and unsent messages", _list)
    listing.add_argument("--json", action="store_true", help="as JSON")
    replay = _part(parts, "replay", "send again what was given up", _replay)
    replay.add_argument("id", nargs="?", default="", metavar="ID", help="one message, whatever became of it")
    replay.add_argument("--since", type=lasting, metavar="2h", help="only what is younger")
    replay.add_argument("--sink", default="", metavar="SINK", help="only of this sink, which is switched on again")
    replay.add_argument("--outdated", action="store_true", help="also messages that a later one has overtaken")
    silence = _part(parts, "silence", "mute findings for a while", _silence)
    silence.add_argument("words", nargs="+", metavar="add|list|expire", help="then MATCHER... or ID")
    silence.add_argument("--for", dest="seconds", type=lasting, metavar="2h", help="how long (add)")
    silence.add_argument("--comment", default="", metavar="TEXT", help="why (add)")
    silence.add_argument("--author", default="", metavar="NAME", help="who (add; default: the user)")
    silence.add_argument("--json", action="store_true", help="as JSON (list)")
    return made


def _part(parts: Any, name: str, text: str, call: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = parts.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    made.set_defaults(call=call)
    return made


def run(argv: list[str]) -> int:
    """Carry out one of the four. Raises InfradocError."""
    args = parser().parse_args(argv)
    return int(args.call(args))


def _config(args: argparse.Namespace) -> tuple[AlertsConfig, Config]:
    from infradoc.alerts.config import alerts_config

    loaded = load_config(args.config)
    return alerts_config(loaded), loaded


def _database(config: AlertsConfig) -> Database:
    from infradoc.alerts.database import Database, state_folder

    return Database(state_folder(config.state), meanwhile="nothing is changed")  # by a command that ends at once


def _test(args: argparse.Namespace) -> int:
    from infradoc.alerts.sinks.all import make_sink

    config, loaded = _config(args)
    if not config.sinks:
        raise InfradocError(f"{loaded.name} names no sinks.", "Add an [alerts.sinks.NAME] table with a `kind`.")
    chosen = [_named(config, args.sink, loaded.name)] if args.sink else list(config.sinks)
    failed = 0
    for name in chosen:
        sink = make_sink(config.sinks[name])
        outcome = _send_test(sink)
        failed += outcome.fate != "delivered"
        said = "delivered" if outcome.fate == "delivered" else "not delivered"
        print(visible(f"{name} ({sink.kind}): {said}: {outcome.text}"))
    return 1 if failed else 0


def _send_test(sink: Sink) -> Outcome:
    from infradoc.alerts.attempt import attempt
    from infradoc.alerts.message import trial_message
    from infradoc.alerts.post import Poster
    from infradoc.alerts.sinks.base import Outcome

    async def send() -> Outcome:
        poster, nonce, now = Poster(sink.config), secrets.token_hex(8), time.time()
        try:
            outcome = await attempt(sink, poster, trial_message(now, nonce), now)
            if outcome.fate == "delivered" and sink.kind in KEEPS_OPEN:
                return await attempt(sink, poster, trial_message(now, nonce, ended=True), now)
            return outcome
        finally:
            await poster.close()

    try:
        sink.check()
    except InfradocError as error:
        return Outcome("dead", str(error))
    return asyncio.run(send())


def _named(config: AlertsConfig, name: str, file: str) -> str:
    if name in config.sinks:
        return name
    from infradoc_rules.near import near

    meant = near(name, config.sinks)
    known = f"Did you mean {meant}?" if meant else f"There are: {', '.join(config.sinks) or 'none'}."
    raise InfradocError(f"{file} names no sink {name!r}.", known)


def _list(args: argparse.Namespace) -> int:
    config, _ = _config(args)
    from infradoc.cli.alerts_words import overview, overview_lines

    shown = overview(config, _database(config), time.time())
    if args.json:
        print(json.dumps(shown, ensure_ascii=False, indent=2))
    else:
        print(visible("\n".join(overview_lines(shown))))
    return 0


def _replay(args: argparse.Namespace) -> int:
    from infradoc.alerts import desk
    from infradoc.alerts.database import state_folder
    from infradoc.alerts.lease import is_held

    config, loaded = _config(args)
    if args.sink:
        _named(config, args.sink, loaded.name)
    now = time.time()
    since = now - args.since if args.since else None
    give_up = max((sink.give_up for sink in config.sinks.values()), default=86_400.0)
    done = desk.replay(
        _database(config), now, give_up, row_id=args.id, since=since, sink=args.sink, outdated=args.outdated
    )
    if args.id and not done.queued:
        raise InfradocError(f"There is no sent or given-up message {args.id!r}.", "`infradoc alerts list` shows them.")
    again = f"{counted(done.queued, 'message')} queued again"
    if done.waited:
        again += f", {counted(done.waited, 'message waits', 'messages wait')} for what is switched on"
    runs = is_held(state_folder(config.state))
    print(f"{again}; {'the running' if runs else 'the next'} `infradoc watch` sends what there is.")
    if done.outdated:
        print(f"{counted(done.outdated, 'message')} left out: a later one was delivered (--outdated sends them too).")
    for name in done.enabled:
        print(f"{name} is switched on again.")
    return 0


def _silence(args: argparse.Namespace) -> int:
    from infradoc.cli.alerts_silence import silence

    config, loaded = _config(args)
    return silence(args, _database(config), loaded)
