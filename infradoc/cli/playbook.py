"""`infradoc playbook ID`: read the runbook of a finding."""

from __future__ import annotations

import argparse
import sys

import infradoc_playbooks
from infradoc.cli.args import Parser
from infradoc.errors import InfradocError

SUMMARY = "Read what a finding means and what to do, or how a mechanism works."
HELP = """\
Without ID: what there is to read.

examples:
  infradoc playbook
  infradoc playbook kv-thrashing-preemption --lang zh
"""
_WORDS = {
    "en": ("Findings", "Mechanisms", "How it works: {pages}"),
    "zh": ("诊断", "机制", "原理：{pages}"),
}


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc playbook",
        description=SUMMARY,
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    about = "a finding id, such as kv-thrashing-preemption, or a mechanism"
    made.add_argument("id", nargs="?", metavar="ID", help=about)
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language (default en)")
    return made


def listed(lang: str) -> list[str]:
    """Each page's name and title: the findings, then the mechanisms."""
    groups = (infradoc_playbooks.ids(), infradoc_playbooks.mechanisms())
    width = max(len(name) for names in groups for name in names) + 2
    lines = []
    for heading, names in zip(_WORDS[lang], groups, strict=False):
        lines += ["", heading, *(f"  {name:<{width}}{infradoc_playbooks.title(name, lang)}" for name in names)]
    return lines[1:]


def page(name: str, lang: str) -> str:
    """The page, and for a finding where to read how the mechanism behind it works. Raises PlaybookError."""
    text = infradoc_playbooks.get(name, lang).rstrip("\n")
    behind = infradoc_playbooks.mechanisms_of(name)
    if not behind:
        return text
    pages = ", ".join(f"`infradoc playbook {one}`" for one in behind)
    return f"{text}\n\n{_WORDS[lang][2].format(pages=pages)}"


def run(argv: list[str]) -> int:
    """Print one playbook, or the list of ids. Raises InfradocError for an id that has none."""
    args = parser().parse_args(argv)
    try:
        text = "\n".join(listed(args.lang)) if args.id is None else page(args.id, args.lang)
    except infradoc_playbooks.PlaybookError as error:
        message = str(error)
        raise InfradocError(f"{message[:1].upper()}{message[1:]}") from error
    if args.id is not None and sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(text)
    return 0
