"""YAML with line numbers, by the C loader: 0.3 ms a rule file, a thirtieth of what a pure Python loader takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infradoc_rules.yaml_cache import CACHE

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_MOST_KEYS = 20_000

Key = str | int


class YamlError(ValueError):
    """A file that is no readable YAML mapping; the message names file and line."""


@dataclass(frozen=True)
class Marked:
    """A YAML document with the line (1-based) of each key path."""

    name: str
    data: Any
    lines: dict[tuple[Key, ...], int] = field(default_factory=dict)

    def line(self, path: tuple[Key, ...]) -> int:
        """Line of `path`, or of its nearest parent that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def load_plain(path: Path | Traversable) -> Any:
    """The document of a packaged file that is known to be sound; parsed once per change of the file."""
    if not isinstance(path, Path):
        return _parsed(path)
    known, document = CACHE.get(path)
    if not known:
        document = _parsed(path)
        CACHE.put(path, document)
    return document


def _parsed(path: Path | Traversable) -> Any:
    import yaml

    with path.open("rb") as handle:
        return yaml.load(handle, Loader=_loader())


def _loader() -> Any:
    """The C loader where it was built. PyYAML is loaded here, when a file is parsed: mostly none is."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_marked(path: Path) -> Marked:
    """The document with line numbers. Raises YamlError naming file and line; doubled keys are refused."""
    import yaml

    loader = _loader()(path.read_bytes())
    try:
        node = loader.get_single_node()
        if node is None:
            raise YamlError(f"{path}: the file is empty")
        lines: dict[tuple[Key, ...], int] = {}
        _Marks(path, lines).walk(node, ())
        return Marked(str(path), loader.construct_document(node), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise YamlError(f"{path}{where}: not readable as YAML: {getattr(error, 'problem', error)}") from error
    except YamlError:
        raise
    except (ValueError, AttributeError, TypeError) as error:  # of a value that its tag or its form does not allow
        raise YamlError(f"{path}: not readable as YAML: {error}") from error
    finally:
        loader.dispose()


class _Marks:
    """Collects the line of each key path; refuses doubled keys, self-references and documents blown up by aliases."""

    def __init__(self, file: Path, lines: dict[tuple[Key, ...], int]) -> None:
        self.file = file
        self.lines = lines
        self.open: set[int] = set()

    def walk(self, node: Any, path: tuple[Key, ...]) -> None:
        line = node.start_mark.line + 1
        if id(node) in self.open:
            raise YamlError(f"{self.file}, line {line}: the anchor here refers to itself")
        if len(self.lines) > _MOST_KEYS:
            raise YamlError(f"{self.file}, line {line}: more than {_MOST_KEYS} keys with all aliases written out")
        self.lines.setdefault(path, line)
        self.open.add(id(node))
        if node.id == "mapping":
            self._keys(node, path)
        elif node.id == "sequence":
            for index, value in enumerate(node.value):
                self.walk(value, (*path, index))
        self.open.discard(id(node))

    def _keys(self, node: Any, path: tuple[Key, ...]) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise YamlError(f"{self.file}, line {key.start_mark.line + 1}: the key {name!r} is there twice")
            seen.add(name)
            self.lines[(*path, name)] = key.start_mark.line + 1
            self.walk(value, (*path, name))
