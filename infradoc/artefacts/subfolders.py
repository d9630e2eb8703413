"""Whether the subfolders of a folder are incidents of their own, such as a pile that somebody collected.

They are when each of at least two holds a log and names an engine by itself, and nothing lies beside them. Folders by
kind of file (logs/, config/), by node or rank of one job, by attempt or by state (before/, after/) are parts of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from infradoc.artefacts.model import Gathered
from infradoc.artefacts.servers import Part
from infradoc.artefacts.split import LOG
from infradoc_rules.model import Event

MOST_INCIDENTS = 32
MOST_BYTES = 64 << 20  # each file is read a second time, with its own folder alone
_OF_ONE = re.compile(
    r"(?:node|rank|worker|host|gpu|head|master|run|attempt|try|start|restart|boot|crash|day|part)s?[-_.]?\d*"
    r"|\d[\d.:-]*|before|after|old|new|good|bad|ok|prev(?:ious)?|current|last",
    re.IGNORECASE,
)


def candidates(root: Path, parts: Sequence[Part]) -> list[Path]:
    """The subfolders that may be incidents of their own, by their names and by what kinds of files lie where."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        folder, slash, _ = part.source.partition("/")
        if not slash:
            return []
        kinds[folder].add(part.kind)
    names = list(kinds)
    if not 2 <= len(names) <= MOST_INCIDENTS or any(_OF_ONE.fullmatch(name) for name in names):
        return []
    spread = {_folder(part) for part in parts if part.signs.nodes}  # one job over several machines
    trained = {_folder(part) for part in parts if _trains(part.artefact.events)}
    if len(spread) > 1 or len(trained) > 1 or not all(LOG in held for held in kinds.values()):
        return []
    folders = [root / name for name in names]
    if not all(folder.is_dir() for folder in folders):
        return []  # an archive: its members have no path
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return folders if sum(file.stat().st_size for file in files) <= MOST_BYTES else []


def are_incidents(found: Sequence[Gathered]) -> bool:
    """Whether each, read alone, names an engine or trains, and no two are the same text."""
    texts = {tuple(event.text for event in one.events) for one in found}
    return all(one.system is not None or _trains(one.events) for one in found) and len(texts) == len(found)


def _trains(events: Sequence[Event]) -> bool:
    return any(event.name == "train_step" for event in events)


def _folder(part: Part) -> str:
    return part.source.partition("/")[0]
