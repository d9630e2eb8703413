"""`infradoc undo [TARGET]`: take the last change back, also after a crash in the middle of it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import get_args

from infradoc.cli.args import Parser
from infradoc.config import Auth, Config, load_config
from infradoc.errors import InfradocError
from infradoc.load.http import Origin
from infradoc.model import VerdictName
from infradoc.monitor.attach import is_recording, same_server, target_config
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction
from infradoc.remediation.admin import AdminClient, AdminError
from infradoc.remediation.change import take_back
from infradoc.remediation.journal import ChangeRecord, Journal
from infradoc.remediation.table import plain
from infradoc.remediation.words import noted, say
from infradoc.sources.admin import token_for
from infradoc_rules.actions import means

SUMMARY = "Take the last change of `fix` back."
EPILOG = """\
examples:
  infradoc undo --list
  infradoc undo http://localhost:8000
  infradoc undo --change 3f9a0c1b22d4 --yes
"""
VERDICTS = get_args(VerdictName)


def parser() -> Parser:
    """The command's flags."""
    made = Parser(
        prog="infradoc undo",
        description=SUMMARY,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "target", nargs="?", metavar="TARGET", help="name from infradoc.toml or URL (default: the last changed)"
    )
    made.add_argument("--change", metavar="ID", help="this change instead of the last one")
    made.add_argument("--yes", action="store_true", help="do not ask, where no TARGET and no --change says which")
    made.add_argument("--list", action="store_true", help="show all changes in the journal")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language of all that is said (default en)")
    return made


def run(argv: list[str]) -> int:
    """Run the command; 0 when the old value is in force again. Raises InfradocError."""
    args = parser().parse_args(argv)
    config = load_config(args.config)
    journal = Journal()
    lang = args.lang
    target = None if args.target is None else server_of(args.target, config, lang)
    changes = journal.changes(target)
    if args.list:
        lines = [line(change, lang) for change in changes]
        print("\n".join(lines) or say(lang, "journal_empty", path=journal.path))
        return 0
    if target is None and args.change is None:
        change = last_alive(changes, journal, config, lang)
        confirm(change, args.yes, lang)
    else:
        change = chosen(changes, args.change, target, journal, lang)
    with admin_of(change, config) as admin:
        print(take_back(admin, journal, change, lang))
    return 0


def server_of(spec: str, config: Config, lang: str = "en") -> str:
    """The URL behind TARGET as the journal has it. Raises InfradocError for what is no live server."""
    url = "" if is_recording(spec, config) else target_config(spec, config).url
    if not url:
        raise InfradocError(say(lang, "need_server", target=spec, command="undo"), say(lang, "give_url_undo"))
    return Origin.parse(url).url


def admin_of(change: ChangeRecord, config: Config) -> AdminClient:
    """A client of the changed engine. It was named when it was changed, so it may be shown the environment's token."""
    url = change.intent.target
    auth = auth_of(url, config)
    return AdminClient(url, token_for(url, auth, asked=True), auth)


def last_alive(changes: list[ChangeRecord], journal: Journal, config: Config, lang: str = "en") -> ChangeRecord:
    """The last change in force on an engine that still answers. Raises InfradocError when there is none."""
    in_force = [change for change in changes if change.open and not is_order(change.intent.action)]
    silent: dict[str, AdminError] = {}
    for change in reversed(in_force):
        url = change.intent.target
        if url in silent:
            continue
        try:
            with admin_of(change, config) as admin:
                admin.config()
        except AdminError as error:
            silent[url] = error
            passed = say(lang, "passed_over", change=line(change, lang), error=error.message)
            print(f"infradoc undo: {passed}", file=sys.stderr)
        else:
            return change
    if silent:
        first = next(iter(silent.values()))
        raise InfradocError(say(lang, "none_answers", error=first.message), first.hint)
    raise InfradocError(say(lang, "nothing_to_undo", path=journal.path), say(lang, "see_list"))


def confirm(change: ChangeRecord, yes: bool, lang: str = "en") -> None:
    """Ask before the last change is taken back, which may not be the one that is meant. Raises InfradocError."""
    if yes:
        return
    what = {"change": told(change, lang), "target": change.intent.target}
    if not sys.stdin.isatty():
        raise InfradocError(say(lang, "last_is", **what), say(lang, "yes_or_name", id=change.intent.change))
    print(say(lang, "ask_undo", **what), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InfradocError(say(lang, "nothing_undone"))


def chosen(
    changes: list[ChangeRecord], wanted: str | None, target: str | None, journal: Journal, lang: str = "en"
) -> ChangeRecord:
    """The change that was named, by its id or its server. Raises InfradocError when there is none."""
    see_list = say(lang, "see_list")
    if wanted is not None:
        for change in changes:
            if change.intent.change == wanted:
                if not change.open:
                    raise InfradocError(say(lang, "not_in_force", id=wanted, state=state_of(change, lang)), see_list)
                return change
        raise InfradocError(say(lang, "no_such_change", id=wanted, path=journal.path), see_list)
    in_force = [change for change in changes if change.open]
    if not in_force:
        key = "none_of_target" if changes else "never_changed"
        raise InfradocError(say(lang, key, target=target, path=journal.path), see_list)
    settings = [change for change in in_force if not is_order(change.intent.action)]
    return (settings or in_force)[-1]


def auth_of(url: str, config: Config) -> Auth:
    """Credentials of the configured target behind a URL."""
    return next((target.auth for target in config.targets.values() if same_server(target.url, url)), Auth())


def line(change: ChangeRecord, lang: str = "en") -> str:
    """One change for the list."""
    first = change.intent
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(first.time))
    known = change.verdict in VERDICTS
    verdict = say(lang, "then") + (say(lang, change.verdict) if known else change.verdict) if change.verdict else ""
    return f"{first.change}  {when}  {first.target}  {told(change, lang)}  {state_of(change, lang)}{verdict}"


def told(change: ChangeRecord, lang: str = "en") -> str:
    """What the change moved, or what was done once."""
    first = change.intent
    if is_order(first.action):
        return means(first.action, lang) or first.knob
    return ", ".join(f"{knob} {plain(old, lang)} -> {plain(new, lang)}" for knob, old, new in first.moves)


def is_order(name: str) -> bool:
    """Whether the action of that name is done once and leaves nothing in force."""
    action = ACTIONS.get(name)
    return isinstance(action, LiveAction) and bool(action.call)


def state_of(change: ChangeRecord, lang: str = "en") -> str:
    """What became of it, in words."""
    last = change.last
    if is_order(change.intent.action) and last.kind in ("applied", "undone"):
        return say(lang, "state_order")
    state = say(lang, f"state_{last.kind}")
    closed = last.kind in ("failed", "undone") and last.note
    return say(lang, "noted", state=state, note=noted(lang, last.note)) if closed else state
