"""`infradoc playbook ID`: read the runbook of a finding."""

from __future__ import annotations

import argparse
import sys

import infradoc_playbooks
from infradoc.catalog import load_rules
from infradoc.cli.args import Parser
from infradoc.errors import InfradocError

SUMMARY = "Read the runbook of a finding, in English or Chinese."
HELP = "Without ID: the ids that have one."


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(prog="infradoc playbook", description=SUMMARY, epilog=HELP)
    made.add_argument("id", nargs="?", metavar="ID", help="a finding id, such as kv-thrashing-preemption")
    made.add_argument("--lang", choices=("en", "zh"), default="en")
    return made


def listed(lang: str) -> list[str]:
    """Each id with the title of its rule, where it has one."""
    titles = {rule.id: rule.title.get(lang) for rule in load_rules().rules}
    names = infradoc_playbooks.ids()
    width = max(map(len, names), default=0) + 2
    return [f"{name:<{width}}{titles.get(name, '')}".rstrip() for name in names]


def run(argv: list[str]) -> int:
    """Print one playbook, or the list of ids. Raises InfradocError for an id that has none."""
    args = parser().parse_args(argv)
    if args.id is None:
        print("\n".join(listed(args.lang)))
        return 0
    try:
        text = infradoc_playbooks.get(args.id, args.lang)
    except infradoc_playbooks.PlaybookError as error:
        message = str(error)
        raise InfradocError(f"{message[:1].upper()}{message[1:]}") from error
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0
