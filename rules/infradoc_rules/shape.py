"""What annotations of the plain rule classes mean to the validator, which asks them only when it builds itself.

Pydantic reads `__pydantic_config__` of a class and calls `__get_pydantic_core_schema__` of what stands in `Annotated`,
so classes state their limits without loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

_KEYS: Mapping[str, str] = {"schema_version": "schema", "for_periods": "for", "request_class": "class"}


def key_of(name: str) -> str:
    """The key in a rule file that fills the field `name`."""
    return _KEYS.get(name, name)


class Part:
    """A part of a rule file: keys that no field is filled by are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "alias_generator": key_of}


class Bounds:
    """Limits of a value, by the names that pydantic-core gives them: ge, gt, le, lt, min_length, pattern."""

    def __init__(self, **limits: float | str) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), **self._limits}


class Shorthand:
    """A text stands for the mapping that has it under `key`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def _written_out(self, item: Any) -> Any:
        return {self._key: item} if isinstance(item, str) else item

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        function = {"type": "no-info", "function": self._written_out}
        return {"type": "function-before", "function": function, "schema": handler(source)}
