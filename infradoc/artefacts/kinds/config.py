"""Files that start a server we know, as facts: Kubernetes, compose, Ray Serve, Helm values, an engine's own --config,
pm2, `docker inspect`. What they say of a container's end becomes events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from infradoc.artefacts.kinds.config_status import ended
from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, json_spans, yaml_spans
from infradoc.sources.launch import launch_facts, system_of
from infradoc.sources.launch_files import (
    TELLING,
    Read,
    apps_facts,
    options_facts,
    ray_facts,
    stack_facts,
)
from infradoc.sources.launch_inspect import inspect_facts, inspected
from infradoc.sources.launch_manifest import manifest_facts
from infradoc.sources.launch_yaml import parsed
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

_KEYS = frozenset().union(*TELLING.values())
# A line that some document which we read must have; most YAML is none of them and is not parsed.
_HEAD = lazy(
    r"^(?:apiVersion|applications|llm_configs|model_loading_config|servingEngineSpec|apps):|^ *(?:- )?image: *(?:\S|$)"
)
_JSON_KEYS = ("HostConfig", "apiVersion", "apps", "engine_kwargs", "gpu_memory_utilization")
_JSON_SIGNS = tuple(f'"{key}"' for key in _JSON_KEYS)
_SCRIPT = lazy(r"^module\.exports ?=|^export default \{")
_SCRIPT_END = lazy(r"^\}\)?;?\s*$")
_SCRIPT_LINES = 200
_BARE_KEY = lazy(r"(?m)([{,]\s*)(\w+) *:(?=\S)")
_READERS: tuple[Callable[[Any, str | None], Read], ...] = (
    inspect_facts,
    ray_facts,
    stack_facts,
    apps_facts,
    manifest_facts,
    options_facts,
)


class ConfigKind:
    """A document that describes how a server is started."""

    name = "config"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """YAML and JSON documents, and pm2's JavaScript, that start an engine or say how its container ended."""
        found = yaml_spans(lines, _wanted)
        if any(sign in line for line in lines for sign in _JSON_SIGNS):
            found += json_spans(lines, lambda value: _read(value, None)[0] or inspected(value))
        found += [span for span in _scripts(lines) if _read(_document(lines[span[0] : span[1]]), None)[0]]
        return sorted(found)

    def read(self, segment: Segment) -> Artefact:
        """Knobs of the arguments and variables, limits of the container, and how it ended."""
        document = _document(segment.lines)
        system, facts = _read(document, segment.source)
        events, counted = ended(document, segment)
        return Artefact(events, [*facts, *counted], [], system, 0)


def _read(document: Any, source: str | None) -> tuple[str | None, list[Fact]]:
    """What the first reader that knows such a document says. The items of a List are documents of their own."""
    items = document.get("items") if isinstance(document, dict) else None
    if isinstance(items, list) and isinstance(document, dict) and "apiVersion" in document:
        found = [_read(item, source) for item in items]
        return next((system for system, _ in found if system), None), [fact for _, facts in found for fact in facts]
    if isinstance(document, dict) and document.get("kind") == "ConfigMap" and isinstance(document.get("data"), dict):
        return _mapped([text for text in document["data"].values() if isinstance(text, str)], source)
    both: list[Fact] = []
    system: str | None = None
    for reader in _READERS:
        own, facts = reader(document, source)
        both += facts
        system = system or own
        if own is not None and reader is not ray_facts:  # a RayService describes its cluster's pods as well
            break
    return system, both


def _mapped(texts: Sequence[str], source: str | None) -> tuple[str | None, list[Fact]]:
    """The files of a ConfigMap: documents of their own, or scripts that start a server."""
    system: str | None = None
    both: list[Fact] = []
    for text in texts:
        own, facts = _read(parsed(text), source)
        if own is None and (own := system_of(text)) is not None:
            facts = launch_facts(text, source)
        both += facts if own else []
        system = system or own
    return system, both


def _wanted(lines: Sequence[str]) -> bool:
    if not any(_HEAD.match(line) or _is_option(line) for line in lines):
        return False
    return _read(parsed("\n".join(lines)), None)[0] is not None


def _is_option(line: str) -> bool:
    return line.partition(":")[0].lstrip("-").replace("_", "-") in _KEYS


def _document(lines: Sequence[str]) -> Any:
    text = "\n".join(lines)
    if lines and _SCRIPT.match(lines[0]):
        return _object(text)
    if text.lstrip()[:1] in "{[":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    return parsed(text)


def _scripts(lines: Sequence[str]) -> list[Span]:
    """pm2's ecosystem files: from `module.exports =` to the line on which its bracket closes."""
    found: list[Span] = []
    for start, line in enumerate(lines):
        if _SCRIPT.match(line):
            last = min(len(lines), start + _SCRIPT_LINES)
            found += [(start, index + 1) for index in range(start, last) if _SCRIPT_END.match(lines[index])][:1]
    return found


def _object(text: str) -> Any:
    """A JavaScript object of plain values: YAML reads it once comments and the statement around it are gone."""
    body = re.sub(r"(?m)(^|\s)//.*$", "", text)
    start, end = body.find("{"), body.rfind("}")
    return parsed(_BARE_KEY.sub(r"\1\2: ", body[start : end + 1])) if 0 <= start < end else None
