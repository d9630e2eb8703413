"""Files that a command writes at its end."""

from __future__ import annotations

import os
from pathlib import Path

from infradoc.errors import InfradocError


def check_writable(path: Path, flag: str) -> None:
    """Refuse before minutes of work what could not be written after them. Creates nothing. Raises InfradocError."""
    place = path if path.exists() else path.parent
    if path.is_dir():
        raise InfradocError(f"{flag} {path} is a folder.", "Give a file in it.")
    if not place.exists():
        raise InfradocError(f"There is no folder {place} for {flag} {path}.", "Make it first.")
    if not os.access(place, os.W_OK):
        raise InfradocError(f"{place} for {flag} {path} may not be written.", "Give another file.")
