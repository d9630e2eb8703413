"""The argument lists of real servers, and whether one of them takes a flag."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from infradoc_rules.versions import version_of

FOLDER = Path(__file__).parents[2] / "data" / "flags"
_OPTION = re.compile(r"--?[A-Za-z][\w-]*$")


class ArgumentLists:
    """The lists of `tests/data/flags`: engine -> version -> name -> how it is given."""

    @cache  # noqa: B019 - one object for the whole run
    def versions(self, engine: str) -> tuple[str, ...]:
        """The versions of an engine that a list is there for, oldest first."""
        found = [path.stem.removeprefix(f"{engine}-") for path in FOLDER.glob(f"{engine}-*.txt")]
        return tuple(sorted(found, key=lambda version: version_of(version, engine) or (0, 0, 0)))

    @cache  # noqa: B019
    def names(self, engine: str, version: str) -> dict[str, str]:
        """Name -> "" (a switch), VALUE, VALUE?, or "=" for a variable."""
        rows = (FOLDER / f"{engine}-{version}.txt").read_text().splitlines()
        words = [row.replace("=", " =").split() for row in rows if not row.startswith("#")]
        return {name: " ".join(rest).replace("DEPRECATED", "").strip() for name, *rest in words}

    def knows_kind(self, engine: str, name: str) -> bool:
        """Whether this engine's lists hold names of that kind: variables are in some engines' only."""
        if name.startswith("-"):
            return True
        lists = [self.names(engine, version).values() for version in self.versions(engine)]
        return name.isupper() and any("=" in kinds for kinds in lists)

    def takes(self, engine: str, version: str, name: str) -> bool:
        """Whether that version's parser, or environment, has the name."""
        return name in self.names(engine, version)

    def fault(self, engine: str, version: str, flag: str, bare: bool = False) -> str | None:
        """What the version's parser would say against a worded flag; None when it takes it.

        `bare`: the flag is named alone, without a value to set.
        """
        words = shlex.split(flag.replace("'s ", "s "))
        dropped = words[0] == "drop"
        words = words[1:] if dropped else words
        for place, word in enumerate(words):
            name, _, value = word.partition("=")
            if not (name.startswith("-") and _OPTION.match(name)):
                if value and name.isupper() and self.knows_kind(engine, name) and not self.takes(engine, version, name):
                    return f"{name} is not read"
                continue
            if not self.takes(engine, version, name):
                return f"{name} is not taken"
            following = words[place + 1] if place + 1 < len(words) else None
            given = bool(value) or (following is not None and not _OPTION.match(following))
            kind = self.names(engine, version)[name]
            if kind == "VALUE" and not given and not bare and not dropped:
                return f"{name} needs a value"
            if kind == "" and given:
                return f"{name} takes no value"
        return None


@pytest.fixture(scope="session")
def argument_lists() -> ArgumentLists:
    """The committed lists."""
    return ArgumentLists()
