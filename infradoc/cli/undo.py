"""`infradoc undo [TARGET]`: take the last change back, also after a crash in the middle of it."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from infradoc.cli.args import Parser
from infradoc.config import Auth, Config, load_config
from infradoc.errors import InfradocError
from infradoc.load.http import Origin
from infradoc.monitor.attach import same_server, target_config
from infradoc.remediation.admin import AdminClient
from infradoc.remediation.change import take_back
from infradoc.remediation.journal import ChangeRecord, Journal
from infradoc.sources.credentials import admin_token
from infradoc.sources.fetch import is_loopback

SUMMARY = "Take the last change back."


def parser() -> Parser:
    """The command's flags."""
    made = Parser(prog="infradoc undo", description="Take the last change back that `infradoc fix` made.")
    made.add_argument(
        "target", nargs="?", metavar="TARGET", help="name from infradoc.toml or URL (default: the last changed)"
    )
    made.add_argument("--change", metavar="ID", help="this change instead of the last one")
    made.add_argument("--list", action="store_true", help="show all changes in the journal")
    made.add_argument("--config", metavar="FILE", help="infradoc.toml to use")
    return made


def run(argv: list[str]) -> int:
    """Run the command; 0 when the old value is in force again. Raises InfradocError."""
    args = parser().parse_args(argv)
    config = load_config(args.config)
    journal = Journal()
    target = Origin.parse(target_config(args.target, config).url).url if args.target else None
    changes = journal.changes(target)
    if args.list:
        print("\n".join(line(change) for change in changes) or f"The journal {journal.path} holds no change.")
        return 0
    change = chosen(changes, args.change, journal)
    url = change.intent.target
    auth = auth_of(url, config)
    token = admin_token(auth, urlsplit(url).port if is_loopback(url) else None)
    with AdminClient(url, token, verify=auth.ca_file or True) as admin:
        print(take_back(admin, journal, change))
    return 0


def chosen(changes: list[ChangeRecord], wanted: str | None, journal: Journal) -> ChangeRecord:
    """The change to take back. Raises InfradocError when there is none."""
    if wanted is not None:
        for change in changes:
            if change.intent.change == wanted:
                if not change.open:
                    raise InfradocError(
                        f"Change {wanted} is not in force ({change.last.kind}).", "See `infradoc undo --list`."
                    )
                return change
        raise InfradocError(f"There is no change {wanted} in {journal.path}.", "See `infradoc undo --list`.")
    in_force = [change for change in changes if change.open]
    if not in_force:
        raise InfradocError(f"There is no change to take back in {journal.path}.", "See `infradoc undo --list`.")
    return in_force[-1]


def auth_of(url: str, config: Config) -> Auth:
    """Credentials of the configured target behind a URL."""
    return next((target.auth for target in config.targets.values() if same_server(target.url, url)), Auth())


def line(change: ChangeRecord) -> str:
    """One change for the list."""
    first = change.intent
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(first.time))
    verdict = f", {change.verdict}" if change.verdict else ""
    moves = ", ".join(f"{knob} {old} -> {new}" for knob, old, new in first.moves)
    return f"{first.change}  {when}  {first.target}  {moves}  {change.last.kind}{verdict}"
