"""Whether every page is complete: sections, steps that can be done, the same in both languages, links that lead on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infradoc_playbooks import (
    HEALTHY,
    LANGUAGES,
    MECHANISM_SECTIONS,
    SECTIONS,
    actions,
    findings_of,
    get,
    ids,
    mechanisms,
    missing,
    sections,
)

_STEP = re.compile(r"^\d+\. ", re.MULTILINE)
_EXPECTED = {"en": re.compile("[Ee]xpected"), "zh": re.compile("预期")}
_ACTION = re.compile(r"^- `([a-z_]+)`", re.MULTILINE)
_LEAST_STEPS = 3
_LEAST_BODY = 10  # characters; less is a heading that somebody meant to fill
_LEAST_CHINESE = 200  # characters in Chinese on a Chinese page


def problems() -> list[str]:
    """One sentence for every fault of a page; empty when all are complete."""
    gone = missing()
    found = [f"playbook {name}: the page {name}.{lang}.md is missing." for name, lang in gone]
    without = {name for name, lang in gone if lang == "en"}  # what the other one is compared with
    for lang in LANGUAGES:
        for name in ids():
            if (name, lang) not in gone and name not in without:
                found += [f"playbook {name} ({lang}): {what}" for what in _runbook(name, lang)]
        for name in mechanisms():
            if (name, lang) not in gone and name not in without:
                found += [f"mechanism {name} ({lang}): {what}" for what in _mechanism(name, lang)]
    return found


def _runbook(name: str, lang: str) -> Iterator[str]:
    text = get(name, lang)
    parts = sections(text)
    yield from _filled(text, parts, SECTIONS[lang], lang)
    steps = _STEP.split(parts.get(SECTIONS[lang][2], ""))[1:]
    if len(steps) < _LEAST_STEPS:
        yield f"has {len(steps)} steps of diagnosis; give at least {_LEAST_STEPS}."
    for number, step in enumerate(steps, 1):
        if "`" not in step:
            yield f"step {number} has no command or field to look at."
        if not _EXPECTED[lang].search(step):
            yield f"step {number} does not say what to expect."
    if name == HEALTHY:
        return
    mitigation = parts.get(SECTIONS[lang][3], "")
    if not actions(name):
        yield "names no action."
    elif tuple(_ACTION.findall(mitigation)) != actions(name):
        yield "names other actions than the English page."


def _mechanism(name: str, lang: str) -> Iterator[str]:
    text = get(name, lang)
    parts = sections(text)
    yield from _filled(text, parts, MECHANISM_SECTIONS[lang], lang)
    yield from (f"names {finding}, which has no playbook." for finding in findings_of(name) if finding not in ids())
    last = parts.get(MECHANISM_SECTIONS[lang][-1], "")
    if tuple(re.findall(r"^- `([a-z-]+)`", last, re.MULTILINE)) != findings_of(name):
        yield "names other findings than the English page."
    if "|---|" not in parts.get(MECHANISM_SECTIONS[lang][5], ""):
        yield "has no measured table."


def _filled(text: str, parts: dict[str, str], wanted: tuple[str, ...], lang: str) -> Iterator[str]:
    if tuple(parts) != wanted:
        yield f"has the sections {', '.join(parts)}; they must be {', '.join(wanted)}."
    yield from (f"{heading} is empty." for heading, body in parts.items() if len(body) < _LEAST_BODY)
    if lang == "zh" and sum("\u4e00" <= char <= "\u9fff" for char in text) < _LEAST_CHINESE:
        yield "is hardly Chinese."
