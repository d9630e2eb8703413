"""`infradoc serve [MODEL]`: start the bundled engine. All flags are the engine's own."""

from __future__ import annotations

from infradoc.cli.engine import exec_engine

SUMMARY = "Start the bundled engine with an OpenAI-compatible server."
HELP = "infradoc serve [MODEL] [--port 8000] [--max-num-seqs N] ...; all flags go to the engine."


def run(argv: list[str]) -> int:
    """Become the engine's server process. Raises InfradocError when the extra is not installed."""
    return exec_engine("serve", argv)
