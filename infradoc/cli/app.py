"""Finds the command and runs it. Commands are imported only when called, so that `--help` costs no more than Python.

Hand-written rather than built on typer: a parser library with rich help takes 0.17 s before the first byte.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from io import FileIO, TextIOWrapper
from typing import NamedTuple

from infradoc import __version__
from infradoc.errors import InfradocError, visible

EXIT_USAGE = 2
EXIT_INTERNAL = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
_NO_ROOM = {
    errno.ENOSPC: "the disk under it is full",
    errno.EDQUOT: "the quota of the disk under it is used up",
    errno.EFBIG: "it would be larger than files may be here (`ulimit -f`)",
}


class Command(NamedTuple):
    """One command: `module` under infradoc.cli exposes run(argv) -> exit code; `takes` is its argument in the help."""

    name: str
    module: str
    takes: str
    summary: str


GROUPS: tuple[tuple[str, tuple[Command, ...]], ...] = (
    (
        "look",
        (
            Command("diagnose", "diagnose", "TARGET...", "Find the cause, its evidence and the change that helps."),
            Command("tui", "tui", "TARGET...", "Watch targets on the terminal; open a finding, apply its fix."),
            Command(
                "watch",
                "watch",
                "[TARGET...]",
                "Watch servers for good, with alerts and a history.",
            ),
            Command(
                "record", "record", "TARGET... -o FILE", "Keep what a server shows, to diagnose it later or elsewhere."
            ),
            Command("lengths", "lengths", "FILE|URL", "Measure request lengths; propose max_model_len from the P99."),
            Command("fit", "fit", "MODEL --gpu GPU", "Say before the start whether a model fits, and what would."),
        ),
    ),
    (
        "act",
        (
            Command("fix", "fix", "TARGET", "Plan the change for a finding; --apply makes it and judges it."),
            Command("undo", "undo", "TARGET", "Take the last change of `fix` back."),
            Command(
                "alerts", "alerts", "test|list|...", "Test the sinks, see what is open and unsent, send again, silence."
            ),
        ),
    ),
    (
        "run",
        (
            Command("serve", "serve", "[MODEL]", "Start the bundled engine with an OpenAI-compatible server."),
            Command("model", "model", "get NAME", "Fetch the model of the bundled engine (98 MB)."),
            Command("bench", "bench", "URL", "Send real traffic and measure it at the client."),
            Command("demo", "demo", "", "Watch four real faults being found, fixed live and verified."),
        ),
    ),
    (
        "learn",
        (
            Command("rules", "rules", "list|lint|test", "Show, check and test the catalog of rules."),
            Command(
                "playbook", "playbook", "ID", "Read what a finding means and what to do, or how a mechanism works."
            ),
        ),
    ),
)


def commands() -> dict[str, Command]:
    """All commands by name."""
    return {command.name: command for _, group in GROUPS for command in group}


def help_text() -> str:
    """The text of `infradoc --help`."""
    lines = [
        "infradoc: the doctor for LLM serving. Finds the cause, shows the evidence, makes the one change that helps.",
        "",
        "usage: infradoc COMMAND [ARGUMENTS]     infradoc COMMAND --help     start with: infradoc diagnose URL",
    ]
    for title, group in GROUPS:
        lines += ["", f"{title}:"]
        lines += [f"  {f'{command.name} {command.takes}'.rstrip():<28}{command.summary}" for command in group]
    lines += [
        "",
        "TARGET: a name of infradoc.toml, the URL of a server or of its /metrics, a recording (folder or .tar.gz);",
        "diagnose also takes logs, launch commands and other files of an incident, or - for pasted text.",
        "Exit codes of diagnose: 0 healthy, 10 warning, 20 critical, 30 cannot tell, 2 usage, 1 internal error.",
    ]
    return "\n".join(lines) + "\n"


def _open_streams() -> None:
    """Give a program that was started with a closed stdout or stderr somewhere to write to; keep stdout whole."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open until the program ends)
    out = sys.stdout
    if out is sys.__stdout__ and isinstance(out, TextIOWrapper) and isinstance(out.buffer, FileIO):
        # PYTHONUNBUFFERED, usual in containers: where a disk fills up, what a short write leaves over is lost unseen.
        sys.stdout = open(out.fileno(), "w", encoding=out.encoding, buffering=1, closefd=False)  # noqa: SIM115


def dispatch(argv: list[str]) -> int:
    """Run one command line and return its exit code. Faults become one sentence on stderr."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 must not turn a report into an error
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nobody is left to tell, and Python must not try again while it ends.
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NO_ROOM:
            return _internal(error)
        # Of a file that is open the error tells no name, and a stdout that failed once may hold nothing any more.
        what = "The output" if _drop_output() else str(error.filename or "The output or a file")
        print(f"infradoc: {visible(what)} cannot be written: {_NO_ROOM[error.errno]}.", file=sys.stderr)
        return EXIT_INTERNAL
    except InfradocError as error:
        print(f"infradoc: {visible(str(error))}", file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:  # argparse: --help and usage errors
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE if stop.code else 0
    except Exception as error:
        return _internal(error)


def _internal(error: Exception) -> int:
    if os.environ.get("INFRADOC_DEBUG") == "1":
        raise error
    print(f"infradoc: {visible(internal_error(error))}", file=sys.stderr)
    return EXIT_INTERNAL


def _drop_output() -> bool:
    """Whether stdout fails; what is in its buffer then goes nowhere: Python would try again while it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def internal_error(error: Exception) -> str:
    """One sentence for a fault of infradoc itself."""
    what = " ".join(str(error).split())[:300].rstrip(".") or "no detail"
    return f"Internal error: {type(error).__name__}: {what}. Set INFRADOC_DEBUG=1 for the traceback and report it."


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0 if argv else EXIT_USAGE
    if argv[0] in ("-V", "--version", "version"):
        print(f"infradoc {__version__}")
        return 0
    command = commands().get(argv[0])
    if command is None:
        raise InfradocError(f"There is no command {argv[0]!r}.", _nearest(argv[0]))
    module = import_module(f"infradoc.cli.{command.module}")
    result = module.run(argv[1:])
    return int(result)


def _nearest(name: str) -> str:
    from infradoc_rules.near import near

    meant = near(name, commands())
    return f"Did you mean `infradoc {meant}`?" if meant else "`infradoc --help` lists them."
