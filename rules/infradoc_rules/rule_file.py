"""Reads rule files and checks them. Errors name file, key, line and the nearest valid name.

Pydantic checks, and is loaded only for that: a packaged rule that was found sound is kept in the cache of parsed files
and built from there as long as neither its file nor the format changes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from infradoc_rules import schema
from infradoc_rules.near import near
from infradoc_rules.schema import Rule
from infradoc_rules.shape import key_of
from infradoc_rules.yaml_cache import CACHE
from infradoc_rules.yaml_file import Key, Marked, YamlError, load_marked

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_FORMAT = (Path(schema.__file__), Path(__file__))
_PARTS: Mapping[str, type[Any]] = {
    part.__name__: part
    for part in (
        schema.Text,
        schema.Condition,
        schema.Support,
        schema.LiveBranch,
        schema.Live,
        schema.MatchBranch,
        schema.PostMortem,
        schema.VerifyMetric,
        schema.Verify,
        Rule,
    )
}


class RuleError(ValueError):
    """A rule file that does not follow the format. `problems` holds one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def rule_of(data: Any) -> Rule:
    """The rule that a parsed file holds. Raises pydantic's ValidationError, or ValueError where nothing is asked."""
    rule = _validator().validate_python(data)
    if rule.live is None and rule.post_mortem is None:
        raise ValueError("needs live or post_mortem conditions")
    return rule


def load_rule(path: Path) -> tuple[Rule, Marked]:
    """The rule in `path` with its line marks. Raises RuleError with one sentence per problem."""
    from pydantic import ValidationError

    try:
        marked = load_marked(path)
    except YamlError as error:
        raise RuleError([str(error)]) from error
    if not isinstance(marked.data, dict):
        raise RuleError([f"{path}, line 1: a rule file is a mapping that starts with `schema: 1`"])
    try:
        return rule_of(marked.data), marked
    except ValidationError as error:
        raise RuleError([_sentence(marked, detail) for detail in error.errors()]) from error
    except ValueError as error:
        raise RuleError([f"{marked.name}, line {marked.line(())}: the rule: {error}"]) from error


def load_sound_rule(path: Path) -> Rule:
    """The rule of a packaged file, quickly where it was found sound before. Raises RuleError as `load_rule` does."""
    known, packed = CACHE.get(path, _FORMAT)
    if known:
        try:
            rule = unpacked(packed)
        except (TypeError, ValueError, KeyError, AttributeError):  # a cache that was damaged: the file is read again
            rule = None
        if isinstance(rule, Rule):
            return rule
    rule, _ = load_rule(path)
    CACHE.put(path, packed_part(rule), _FORMAT)
    return rule


def packed_part(value: Any) -> Any:
    """A part of a rule as what marshal can hold: (class name, fields that are not the default), tuples as lists."""
    if is_dataclass(value):
        held = {one.name: getattr(value, one.name) for one in fields(value)}
        defaults = {one.name: one.default for one in fields(value)}
        told = {name: packed_part(item) for name, item in held.items() if item is not defaults[name]}
        return (type(value).__name__, told)
    return [packed_part(item) for item in value] if isinstance(value, tuple) else value


def unpacked(value: Any) -> Any:
    """The part that `packed_part` packed. Raises TypeError, ValueError or KeyError for what it never gives."""
    if isinstance(value, tuple):
        name, told = value
        return _PARTS[name](**{field: unpacked(item) for field, item in told.items()})
    return tuple(map(unpacked, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def _validator() -> TypeAdapter[Rule]:
    from pydantic import TypeAdapter

    return TypeAdapter(Rule)


def _sentence(marked: Marked, detail: Any) -> str:
    path = tuple(part for part in detail["loc"] if not _is_model_tag(part))
    where = f"{marked.name}, line {marked.line(path)}: {_dotted(path) or 'the rule'}"
    if detail["type"] == "unexpected_keyword_argument":
        meant = near(str(path[-1]), _keys_at(path[:-1]))
        hint = f"; did you mean {meant!r}?" if meant else f"; known keys: {', '.join(_keys_at(path[:-1]))}"
        return f"{where} is no key of this format{hint}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    if detail["type"] == "dataclass_type":
        return f"{where}: must be a mapping with the keys {', '.join(_keys_at(path))}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]}"


def _is_model_tag(part: Key) -> bool:
    return isinstance(part, str) and part.startswith("function-")


def _dotted(path: tuple[Key, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _keys_at(path: tuple[Key, ...]) -> list[str]:
    """Valid keys of the mapping at `path`."""
    part: type[Any] = Rule
    for key in path:
        if isinstance(key, int):
            continue
        inner = _part_in(_hints(part).get(key))
        if inner is None:
            return []
        part = inner
    return list(_hints(part))


def _hints(part: type[Any]) -> dict[str, Any]:
    """The type of each key of a part."""
    hints = typing.get_type_hints(part, include_extras=True)
    return {key_of(one.name): hints[one.name] for one in fields(part)}


def _part_in(hint: Any) -> type[Any] | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    if typing.get_origin(hint) in (tuple, typing.Union, types.UnionType, Annotated):
        found = (_part_in(argument) for argument in typing.get_args(hint))
        return next((part for part in found if part is not None), None)
    return None
