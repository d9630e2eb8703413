"""Paths as people write them, in arguments and in infradoc.toml."""

from __future__ import annotations

from pathlib import Path


def written_path(text: str, folder: Path | None = None) -> Path:
    """`text` with its `~` filled in; with `folder` absolute, from there on, and without links.

    Raises ValueError that says in a few words why there can be no such path: the home of nobody, links in a circle, a
    name that is too long.
    """
    try:
        path = Path(text).expanduser()
        return path if folder is None else (folder / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(why(error)) from error


def why(error: Exception) -> str:
    """What the system or Python says of a path, as a part of a sentence."""
    said = getattr(error, "strerror", None) or str(error)
    return str(said).rstrip(".")
