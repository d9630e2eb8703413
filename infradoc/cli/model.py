"""`infradoc model get NAME`: fetch a model for the bundled engine."""

from __future__ import annotations

import sys

from infradoc.cli.engine import exec_engine
from infradoc.errors import InfradocError

SUMMARY = "Fetch the model of the bundled engine (98 MB)."
EXAMPLE = "infradoc model get smollm2-135m"
HELP = f"usage: infradoc model get NAME\n\nexample:\n  {EXAMPLE}     then: infradoc serve smollm2-135m"


def run(argv: list[str]) -> int:
    """Become the engine's model command. Raises InfradocError for wrong usage or without the extra."""
    if not argv:
        raise InfradocError("The command `infradoc model` needs to know what to do.", f"Try: {EXAMPLE}.")
    if argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP + "\n")
        return 0
    return exec_engine("model", argv)
