"""Hands over to the bundled engine, which is a program of its own: the agent never imports it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from infradoc.errors import InfradocError

INSTALL = "pip install 'infradoc[engine]' (in a checkout: pip install '.[engine]')"
NEEDED = ("torch", "starlette", "uvicorn", "tokenizers")


def missing_packages() -> list[str]:
    """What of the engine's extra is not installed. Looks for the packages without importing them."""
    return [name for name in NEEDED if find_spec(name) is None]


def exec_engine(command: str, argv: list[str]) -> int:
    """Replace this process by `python -P -m infradoc_engine COMMAND ARGV`. Raises InfradocError without the extra.

    -P keeps the current folder off sys.path: a folder named like a package there must not be taken for it.
    """
    missing = missing_packages()
    if missing:
        raise InfradocError(f"The bundled engine is not installed ({', '.join(missing)} missing).", f"Run: {INSTALL}")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "infradoc_engine", command, *argv])
