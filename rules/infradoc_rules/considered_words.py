"""The sentences on what a condition found (`considered_words.yaml`), in English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from infradoc_rules.conditions import Variables, read_match
from infradoc_rules.considered_parts import Part
from infradoc_rules.match import source_of
from infradoc_rules.model import SignalFrame, Value
from infradoc_rules.texts import number, places, render
from infradoc_rules.units import GIB, size_text
from infradoc_rules.yaml_file import load_plain

_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_SPEC = re.compile(r"\{value(?::([^{}]*))?\}")
_BIG = 1e15  # beyond it a number says no more than "very many"


@lru_cache(maxsize=1)
def table() -> Mapping[str, Any]:
    """The packaged words: fixed, facts, events, rivals."""
    raw: dict[str, Any] = load_plain(resources.files("infradoc_rules") / "considered_words.yaml")
    return raw


def fixed(name: str, lang: str, **values: str) -> str:
    """One of the sentences around, filled in."""
    return render(_in(table()["fixed"][name], lang), values)


def sentence(part: Part, frame: SignalFrame, values: Mapping[str, Value | None], lang: str) -> str | None:
    """What the condition found, as it is; None where there are no words for it.

    values: what the rule's own texts may name.
    """
    row = _row(part)
    template = _template(row, part)
    if template is not None:
        more = {name: _figure(name, text, frame) for name, text in (row.get("values") or {}).items()}
        if "unsaid" in row and part.value is False and next(iter(more.values())) is None:
            template = row["unsaid"]
        return _filled(_in(template, lang), {**more, "value": part.value})
    text = part.condition.text
    if text is None or not part.plain or "{value" not in text.en or not _sane(part.value):
        return None
    shown = {**values, "value": part.value}
    if any(shown.get(name) is None for name in places(text.en)):
        return None
    said = render(text.get(lang), shown)  # as if it held: it may call steady what is not
    return said if part.holds else fixed("not_met", lang, text=said)


def worded(part: Part) -> bool:
    """Whether the table has a sentence for it, which stands by itself."""
    return _template(_row(part), part) is not None


def _row(part: Part) -> Mapping[str, Any]:
    row: Mapping[str, Any] = table()["facts"].get(part.fact) or table()["events"].get(part.event) or {}
    return row


def place(part: Part, frame: SignalFrame) -> str | None:
    """Where the sentence was read; where the fact itself has no place, that of the figures beside it."""
    if part.source is not None or part.fact is None:
        return part.source
    row = table()["facts"].get(part.fact) or {}
    named = {name for text in (row.get("values") or {}).values() for name in re.findall(r'"([^"]+)"', text)}
    return source_of((), named, frame) or source_of((), {str(row.get("at"))}, frame)


def need(part: Part, lang: str) -> str | None:
    """What a number would have to be; None where no number decided."""
    if not part.numeric or part.op not in table()["fixed"] or not isinstance(part.limit, int | float):
        return None
    spec = _spec(part)
    whole = not spec.endswith("%") and part.limit == int(part.limit)
    return fixed(part.op, lang, limit=format(part.limit, spec) if spec and not whole else number(part.limit))


def _spec(part: Part) -> str:
    """The format that the value is shown in; finer where the limit would be rounded away."""
    row = table()["facts"].get(part.fact) or {}
    text = _in(row["number"], "en") if "number" in row else part.condition.text.en if part.condition.text else ""
    found = _SPEC.search(text)
    spec = (found[1] or "") if found else ""
    if spec.endswith("%") and isinstance(part.limit, int | float) and round(100 * part.limit, 6) % 1:
        return ".1%"
    if spec.endswith("f") and isinstance(part.limit, int | float):
        return "" if float(format(part.limit, spec).replace(",", "")) != part.limit else spec
    return spec


def _template(row: Mapping[str, Any], part: Part) -> Mapping[str, str] | None:
    value = part.value
    if part.event is not None:
        found: Mapping[str, str] | None = row.get("some" if value else "none")
        return found
    if isinstance(value, bool):
        return row.get("holds" if value else "fails")
    if isinstance(value, str):
        return (row.get("is") or {}).get(value) or row.get("other")
    if value == 0 and "zero" in row:
        return row.get("zero")
    return row.get("number") if _sane(value) else None


def _figure(name: str, text: str, frame: SignalFrame) -> Value | None:
    value = read_match(text, frame, Variables({}))
    return _size(value) if name.endswith("_size") and value is not None else value


def _size(count: float) -> str:
    """Bytes for people: 0.21 GiB, 2 MiB."""
    return f"{count / GIB:.2f} GiB" if abs(count) >= GIB / 10 or count == 0 else size_text(count)


def _sane(value: Value | None) -> bool:
    return isinstance(value, int | float) and abs(value) < _BIG


def _filled(text: str, values: Mapping[str, Value | None]) -> str:
    """The template; an optional piece of which something is not known is left out."""

    def piece(found: re.Match[str]) -> str:
        return found[1] if all(_given(values.get(name)) for name in places(found[1])) else ""

    return render(_OPTIONAL.sub(piece, text), values)


def _given(value: Value | None) -> bool:
    return value is not None and (isinstance(value, str) or _sane(value))


def _in(text: Mapping[str, str], lang: str) -> str:
    return text["zh" if lang == "zh" else "en"]
