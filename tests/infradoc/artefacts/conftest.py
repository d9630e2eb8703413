"""Cases, and the ways in which people mangle what they paste."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from infradoc.artefacts.gather import gather, segments_of
from infradoc.artefacts.model import Artefact, Kind, Segment
from infradoc.catalog import load_rules
from infradoc_rules.catalog import Catalog
from infradoc_rules.model import Event, Value
from infradoc_rules.patterns import LogScanner
from infradoc_rules.patterns.prefix import take_off

LABEL = "label.yaml"


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_rules()


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    return Path(__file__).parents[2] / "data" / "cases"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes files of a folder: name=text or bytes."""

    def make(**files: str | bytes) -> Path:
        folder = tmp_path / "case"
        folder.mkdir(exist_ok=True)
        for name, data in files.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return folder

    return make


@pytest.fixture
def read(write):
    """What is gathered from files."""
    return lambda **files: gather(write(**files))


@pytest.fixture(scope="session")
def read_kind() -> Callable[[Kind, str], tuple[list[Event], dict[str, Value]]]:
    """Reads what a kind claims of a text: (events, facts by name)."""

    def read(kind: Kind, text: str) -> tuple[list[Event], dict[str, Value]]:
        lines = text.splitlines()
        parts = [
            kind.read(Segment(kind.name, "paste", start + 1, lines[start:end])) for start, end in kind.spans(lines)
        ]
        events = [event for part in parts for event in part.events]
        return events, {fact.name: fact.value for part in parts for fact in part.facts}

    return read


@pytest.fixture(scope="session")
def read_whole() -> Callable[[Kind, str, list[str]], Artefact]:
    """Reads lines that are of one kind from the first to the last."""
    return lambda kind, source, lines: kind.read(Segment(kind.name, source, 1, lines))


@pytest.fixture(scope="session")
def mangles() -> dict[str, Callable[[Path, Path], None]]:
    """Name -> a function that writes a mangled copy of a case into an empty folder."""
    return {
        "shuffled": _each(shuffled),
        "stripped": _each(lambda text, path: "\n".join(take_off(line).message for line in text.split("\n"))),
        "markdown": _each(lambda text, path: f"### what I see\n\n> ```text\n{_quoted(text)}\n> ```\n\nAny idea?\n"),
        "thinned": _each(thinned),
        "renamed": _renamed,
        "concatenated": _concatenated,
    }


def _files(case: Path) -> list[Path]:
    return sorted(path for path in case.iterdir() if path.name != LABEL)


def _each(change: Callable[[str, Path], str]) -> Callable[[Path, Path], None]:
    def apply(case: Path, out: Path) -> None:
        for path in _files(case):
            (out / path.name).write_text(change(path.read_text(errors="replace"), path))

    return apply


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.rstrip("\n").split("\n"))


def shuffled(text: str, path: Path) -> str:
    """Lines with the same stamp in any order; lines without one follow the one above them."""
    rng = random.Random(path.parent.name)
    blocks: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        stamp = take_off(line).stamp
        if stamp is None and blocks:
            blocks[-1][1].append(line)
        else:
            blocks.append((stamp[1] if stamp else "", [line]))
    out: list[str] = []
    for stamp, group in groupby(blocks, key=lambda block: block[0]):
        held = [lines for _, lines in group]
        if stamp:
            rng.shuffle(held)
        out += [line for lines in held for line in lines]
    return "\n".join(out)


def thinned(text: str, path: Path) -> str:
    """Without half of the log lines that no pattern knows."""
    rng = random.Random(path.parent.name)
    logs = [segment for segment in segments_of(path) if segment.kind == "log"]
    unknown = {number for segment in logs for number in _unknown(segment.lines, segment.first_line)}
    dropped = {number for number in sorted(unknown) if rng.random() < 0.5}
    return "\n".join(line for number, line in enumerate(text.split("\n"), start=1) if number not in dropped)


def _unknown(lines: list[str], first: int) -> Iterator[int]:
    systems = ("vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama")
    scanners = [LogScanner(system) for system in systems]
    for number, line in enumerate(lines, start=first):
        before = [scanner.unparsed for scanner in scanners]
        for scanner in scanners:
            scanner.feed(line)
        if all(scanner.unparsed > count for scanner, count in zip(scanners, before, strict=True)):
            yield number


def _renamed(case: Path, out: Path) -> None:
    for number, path in enumerate(_files(case)):
        (out / f"paste-{chr(97 + number)}").write_bytes(path.read_bytes())


def _concatenated(case: Path, out: Path) -> None:
    (out / "paste").write_text("\n".join(path.read_text(errors="replace").rstrip("\n") for path in _files(case)))
