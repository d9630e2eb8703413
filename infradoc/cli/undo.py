"""`infradoc undo [TARGET]`: take the last change back, also after a crash in the middle of it."""

from __future__ import annotations

import sys
import time

from infradoc.cli.args import Parser
from infradoc.config import Auth, Config, load_config
from infradoc.errors import InfradocError
from infradoc.load.http import Origin
from infradoc.monitor.attach import is_recording, same_server, target_config
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.base import LiveAction
from infradoc.remediation.admin import AdminClient, AdminError
from infradoc.remediation.change import take_back
from infradoc.remediation.journal import ChangeRecord, Journal
from infradoc.remediation.table import plain
from infradoc.sources.admin import token_for
from infradoc_rules.actions import means

SUMMARY = "Take the last change back."


def parser() -> Parser:
    """The command's flags."""
    made = Parser(prog="infradoc undo", description="Take the last change back that `infradoc fix` made.")
    made.add_argument(
        "target", nargs="?", metavar="TARGET", help="name from infradoc.toml or URL (default: the last changed)"
    )
    made.add_argument("--change", metavar="ID", help="this change instead of the last one")
    made.add_argument("--yes", action="store_true", help="do not ask, where no TARGET and no --change says which")
    made.add_argument("--list", action="store_true", help="show all changes in the journal")
    made.add_argument("--config", metavar="FILE", help="infradoc.toml to use")
    return made


def run(argv: list[str]) -> int:
    """Run the command; 0 when the old value is in force again. Raises InfradocError."""
    args = parser().parse_args(argv)
    config = load_config(args.config)
    journal = Journal()
    target = None if args.target is None else server_of(args.target, config)
    changes = journal.changes(target)
    if args.list:
        print("\n".join(line(change) for change in changes) or f"The journal {journal.path} holds no change.")
        return 0
    if target is None and args.change is None:
        change = last_alive(changes, journal, config)
        confirm(change, args.yes)
    else:
        change = chosen(changes, args.change, target, journal)
    with admin_of(change, config) as admin:
        print(take_back(admin, journal, change))
    return 0


def server_of(spec: str, config: Config) -> str:
    """The URL behind TARGET as the journal has it. Raises InfradocError for what is no live server."""
    url = "" if is_recording(spec, config) else target_config(spec, config).url
    if not url:
        raise InfradocError(f"{spec} is a file or folder: undo needs a live server.", "Give its URL or its name.")
    return Origin.parse(url).url


def admin_of(change: ChangeRecord, config: Config) -> AdminClient:
    """A client of the changed engine. It was named when it was changed, so it may be shown the environment's token."""
    url = change.intent.target
    auth = auth_of(url, config)
    return AdminClient(url, token_for(url, auth, asked=True), auth)


def last_alive(changes: list[ChangeRecord], journal: Journal, config: Config) -> ChangeRecord:
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
            print(f"infradoc undo: passed over {line(change)}: {error.message}", file=sys.stderr)
        else:
            return change
    if silent:
        first = next(iter(silent.values()))
        raise InfradocError(f"No engine with a change in force answers. {first.message}", first.hint)
    raise InfradocError(f"There is no change to take back in {journal.path}.", "See `infradoc undo --list`.")


def confirm(change: ChangeRecord, yes: bool) -> None:
    """Ask before the last change is taken back, which may not be the one that is meant. Raises InfradocError."""
    if yes:
        return
    if not sys.stdin.isatty():
        hint = f"Add --yes, or name it: `infradoc undo --change {change.intent.change}`."
        raise InfradocError(f"The last change is {told(change)} on {change.intent.target}.", hint)
    print(f"Take back {told(change)} on {change.intent.target}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InfradocError("Nothing was taken back.")


def chosen(changes: list[ChangeRecord], wanted: str | None, target: str | None, journal: Journal) -> ChangeRecord:
    """The change that was named, by its id or its server. Raises InfradocError when there is none."""
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
        why = f"{target} has no change to take back" if changes else f"infradoc has changed nothing on {target}"
        raise InfradocError(f"{why}, says {journal.path}.", "See `infradoc undo --list`.")
    settings = [change for change in in_force if not is_order(change.intent.action)]
    return (settings or in_force)[-1]


def auth_of(url: str, config: Config) -> Auth:
    """Credentials of the configured target behind a URL."""
    return next((target.auth for target in config.targets.values() if same_server(target.url, url)), Auth())


def line(change: ChangeRecord) -> str:
    """One change for the list."""
    first = change.intent
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(first.time))
    verdict = f", {change.verdict}" if change.verdict else ""
    return f"{first.change}  {when}  {first.target}  {told(change)}  {state_of(change)}{verdict}"


def told(change: ChangeRecord) -> str:
    """What the change moved, or what was done once."""
    first = change.intent
    if is_order(first.action):
        return means(first.action) or first.knob
    return ", ".join(f"{knob} {plain(old)} -> {plain(new)}" for knob, old, new in first.moves)


def is_order(name: str) -> bool:
    """Whether the action of that name is done once and leaves nothing in force."""
    action = ACTIONS.get(name)
    return isinstance(action, LiveAction) and bool(action.call)


def state_of(change: ChangeRecord) -> str:
    """What became of it, in words."""
    last = change.last
    if is_order(change.intent.action) and last.kind in ("applied", "undone"):
        return "done, nothing to take back"
    return {"intent": "may be in force", "applied": "in force", "undo_intent": "being taken back"}.get(
        last.kind, f"{last.kind} ({last.note})" if last.note else last.kind
    )
