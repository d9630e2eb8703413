"""`infradoc alerts silence`: findings that are muted for a while."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from collections.abc import Sequence

from infradoc.alerts.database import Database
from infradoc.alerts.matchers import Silence, parse_matcher
from infradoc.alerts.records import add_silence, expire_silence, load_silences
from infradoc.alerts.words import clock
from infradoc.cli.alerts_words import silence_lines
from infradoc.config import Config
from infradoc.errors import InfradocError, visible
from infradoc_rules.near import near
from infradoc_rules.vocabulary import finding_ids


def silence(args: argparse.Namespace, database: Database, loaded: Config) -> int:
    """Carry out add, list or expire. Raises InfradocError."""
    verb, *rest = args.words
    if verb not in ("add", "list", "expire"):
        verb, rest = "add", args.words
    if verb == "list":
        return _silences(database, args.json)
    if verb == "expire":
        return _expire(database, rest)
    made = _add(database, rest, args)
    print(visible(f"{made.id} silences {' '.join(map(str, made.matchers))} until {clock(made.ends)}."))
    for line in [*_unknown_targets(made, loaded), *_unknown_findings(made)]:
        print(visible(line), file=sys.stderr)
    return 0


def _unknown_targets(silence: Silence, config: Config) -> list[str]:
    """A sentence for each target that the file does not name: a misspelt silence mutes nothing, and nobody notices.

    No refusal: `infradoc watch URL` watches targets that no file names.
    """
    named = [one.value for one in silence.matchers if one.label == "target" and one.operator == "="]
    return [
        f"{config.name} names no target {name!r}; there are: {', '.join(config.targets)}. "
        f"If that is a slip: infradoc alerts silence expire {silence.id}"
        for name in named
        if config.targets and name not in config.targets
    ]


def _unknown_findings(silence: Silence) -> list[str]:
    """A sentence for each finding, by name or by pattern, that no rule can tell; no refusal, as for targets."""
    lines = []
    for one in silence.matchers:
        if one.label != "finding" or one.operator not in ("=", "=~"):
            continue
        if any(one.matches({"finding": name}) for name in finding_ids()):
            continue
        meant = near(one.value, finding_ids())
        known = f"did you mean {meant}?" if meant else "`infradoc rules list` shows them."
        what = f"There is no finding {one.value!r}" if one.operator == "=" else f"No finding matches {one.value!r}"
        lines.append(f"{what}; {known} If that is a slip: infradoc alerts silence expire {silence.id}")
    return lines


def _silences(database: Database, as_json: bool) -> int:
    found = [silence.as_dict() for silence in load_silences(database, time.time())]
    print(json.dumps(found, ensure_ascii=False, indent=2) if as_json else visible("\n".join(silence_lines(found))))
    return 0


def _expire(database: Database, ids: Sequence[str]) -> int:
    if not ids:
        raise InfradocError("Which silence is to end?", "Give the id that `infradoc alerts silence list` shows.")
    for silence_id in ids:
        if not expire_silence(database, silence_id, time.time()):
            raise InfradocError(
                f"There is no silence {silence_id!r} in force.", "`infradoc alerts silence list` shows them."
            )
        print(visible(f"{silence_id} has ended."))
    return 0


def _add(database: Database, texts: Sequence[str], args: argparse.Namespace) -> Silence:
    if not texts:
        raise InfradocError("What is to be silenced?", "Give matchers, for example target=prod.")
    if args.seconds is None:
        raise InfradocError("For how long?", "Add for example --for 2h: every silence ends by itself.")
    try:
        matchers = [parse_matcher(text) for text in texts]
    except ValueError as error:
        text = str(error)
        raise InfradocError(f"{text[:1].upper()}{text[1:]}.") from error
    now = time.time()
    return add_silence(database, matchers, now, now + args.seconds, args.author or _user(), args.comment)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
