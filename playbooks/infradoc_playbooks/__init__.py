"""Runbooks: one per finding id, in English and Chinese, as Markdown. Imports nothing of infradoc."""

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
_SHOWN = 3
_ACTION = re.compile(r"^- `([a-z_]+)`", re.MULTILINE)


class PlaybookError(LookupError):
    """No such runbook; the message names the nearest id."""


def _folder() -> Traversable:
    return resources.files("infradoc_playbooks") / "catalog"


def ids() -> tuple[str, ...]:
    """Finding ids that have a runbook, sorted."""
    return tuple(sorted({item.name.split(".", 1)[0] for item in _folder().iterdir() if item.name.endswith(".md")}))


def get(finding_id: str, lang: str = "en") -> str:
    """The runbook of a finding id as Markdown, in `lang` (English for any other than zh). Raises PlaybookError."""
    known = ids()
    if finding_id not in known:
        began = [name for name in known if finding_id and name.startswith(finding_id)]  # half a name beats a like one
        near = began or difflib.get_close_matches(finding_id, known, n=1)
        holds = [name for name in known if finding_id and finding_id in name][:_SHOWN]
        near = near or holds
        hint = f"did you mean {near[0]!r}?" if near else "`infradoc playbook` lists them"
        raise PlaybookError(f"there is no playbook {finding_id!r}; {hint}")
    return (_folder() / f"{finding_id}.{'zh' if lang == 'zh' else 'en'}.md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """The second-level sections of a runbook: heading to body."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {parts[index].strip(): parts[index + 1].strip() for index in range(1, len(parts), 2)}


def actions(finding_id: str) -> tuple[str, ...]:
    """Names of the actions that a runbook lists under Mitigation, in order. Raises PlaybookError."""
    return tuple(_ACTION.findall(sections(get(finding_id))["Mitigation"]))
