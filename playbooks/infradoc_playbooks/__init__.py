"""Runbooks: one per finding id, and a page per mechanism of serving; in English and Chinese, as Markdown.

Imports nothing of infradoc.
"""

from __future__ import annotations

import difflib
import re
from importlib import resources
from importlib.resources.abc import Traversable

LANGUAGES = ("en", "zh")
SECTIONS = {
    "en": ("Meaning", "Impact", "Diagnosis", "Mitigation", "Trade-off", "False alarms"),
    "zh": ("含义", "影响", "诊断", "处理", "取舍", "误报"),
}
MECHANISM_SECTIONS = {
    "en": ("Background", "Problem", "Solution", "Trade-offs", "Lesson", "Measured", "Findings"),
    "zh": ("背景", "问题", "方案", "取舍", "启示", "实测", "相关诊断"),
}
HEALTHY = "healthy"  # the one page that belongs to no rule: what a silent report means
_SHOWN = 3
_MARKS = re.compile(r"^<!-- \w+ -->\n", re.MULTILINE)  # where the bench puts its tables
_ACTION = re.compile(r"^- `([a-z_]+)`", re.MULTILINE)


class PlaybookError(LookupError):
    """No such page; the message names the nearest one, or the language that it is missing in."""


def _folder(name: str) -> Traversable:
    return resources.files("infradoc_playbooks") / name


def _names(folder: str) -> tuple[str, ...]:
    pages = (item.name for item in _folder(folder).iterdir())
    return tuple(sorted({page.split(".", 1)[0] for page in pages if page.endswith(".md")}))


def ids() -> tuple[str, ...]:
    """Finding ids that have a runbook, sorted."""
    return _names("catalog")


def mechanisms() -> tuple[str, ...]:
    """Names of the mechanism pages, sorted."""
    return _names("mechanisms")


def get(name: str, lang: str = "en") -> str:
    """A runbook or a mechanism's page as Markdown, in `lang` (English for any other than zh). Raises PlaybookError."""
    folder = "mechanisms" if name in mechanisms() else "catalog"
    known = (*ids(), *mechanisms())
    if name not in known:
        raise PlaybookError(f"there is no playbook {name!r}; {_nearest(name, known)}")
    file = _page(folder, name, "zh" if lang == "zh" else "en")
    if not file.is_file():
        raise PlaybookError(f"the page {folder}/{file.name} is missing; add it beside the one in the other language")
    return _MARKS.sub("", file.read_text(encoding="utf-8"))


def _page(folder: str, name: str, lang: str) -> Traversable:
    return _folder(folder) / f"{name}.{lang}.md"


def missing() -> list[tuple[str, str]]:
    """(name, language) of each page that there is in the other language alone."""
    pages = [("catalog", name) for name in ids()] + [("mechanisms", name) for name in mechanisms()]
    return [(name, lang) for folder, name in pages for lang in LANGUAGES if not _page(folder, name, lang).is_file()]


def _nearest(name: str, known: tuple[str, ...]) -> str:
    began = [one for one in known if name and one.startswith(name)]  # half a name beats a like one
    near = began or difflib.get_close_matches(name, known, n=1)
    holds = [one for one in known if name and name in one][:_SHOWN]
    near = near or holds
    return f"did you mean {near[0]!r}?" if near else "`infradoc playbook` lists them"


def title(name: str, lang: str = "en") -> str:
    """A page's title. Raises PlaybookError."""
    return get(name, lang).partition("\n")[0].removeprefix("# ")


def findings_of(mechanism: str) -> tuple[str, ...]:
    """The finding ids that a mechanism's page names, in order. Raises PlaybookError."""
    body = sections(get(mechanism))[MECHANISM_SECTIONS["en"][-1]]
    return tuple(re.findall(r"^- `([a-z-]+)`", body, re.MULTILINE))


def mechanisms_of(finding_id: str) -> tuple[str, ...]:
    """The mechanism pages that explain what a finding is about, sorted."""
    gone = set(missing())
    return tuple(name for name in mechanisms() if (name, "en") not in gone and finding_id in findings_of(name))


def sections(text: str) -> dict[str, str]:
    """The second-level sections of a runbook: heading to body."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {parts[index].strip(): parts[index + 1].strip() for index in range(1, len(parts), 2)}


def actions(finding_id: str) -> tuple[str, ...]:
    """Names of the actions that a runbook lists under Mitigation, in order. Raises PlaybookError."""
    return tuple(_ACTION.findall(sections(get(finding_id))["Mitigation"]))
