"""Scores the diagnosis of labelled cases, in one process.

A case is a folder with artefacts and a label.yaml; the label is not read as an artefact. Shares, each over the cases
that it applies to (`n`):
  top1         the first finding at warning or above is the expected primary id, or one of also_ok
  any          an expected or also_ok id is among the findings at warning or above
  forbid       a forbidden id is among them (lower is better)
  false_alarm  a healthy case has any finding at warning or above (lower is better)
  fix          one of the first two actions of the first right finding is a labelled change: same knob, same direction
A case that cannot be read counts as wrong in every share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from infradoc.errors import InfradocError
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc_rules.actions import ACTIONS
from infradoc_rules.catalog import Catalog
from infradoc_rules.model import SEVERITY_RANK
from infradoc_rules.near import near, slip_of
from infradoc_rules.vocabulary import finding_ids
from infradoc_rules.yaml_file import YamlError, load_marked, load_plain

LABEL = "label.yaml"
HEALTHY = "healthy"
SHARES = ("top1", "any", "forbid", "false_alarm", "fix")
_ENGINES = ("also", "vllm", "sglang", "tgi", "llamacpp", "lmdeploy", "trtllm", "ollama")
_FIELDS = ("expect", "also_ok", "forbid", "fix", "system", "version")
_DIRECTIONS = ("increase", "decrease", "enable", "disable", "set", "fix")
_OPPOSITE = {"enable": "disable", "disable": "enable"}


class LabelError(InfradocError):
    """A label that cannot be used; names the file."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a case should give. `fix`: knob -> direction, or {set: value} whose value is not compared."""

    expect: tuple[str, ...]
    also_ok: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    fix: Mapping[str, Any] = field(default_factory=dict)
    system: str = ""
    version: str = ""

    @property
    def healthy(self) -> bool:
        """Whether nothing should be found."""
        return self.expect[0] == HEALTHY


@dataclass(frozen=True, slots=True)
class Row:
    """One case: its label, the ids found at warning or above, and its vote in each share that applies to it."""

    case: str
    label: Label
    ids: tuple[str, ...]
    votes: Mapping[str, bool]
    seconds: float = 0.0
    error: str | None = None

    @property
    def short(self) -> str | None:
        """One line on a case that falls short; None for a good one."""
        votes = self.votes
        if not self.error and votes.get("top1", True) and votes.get("fix", True) and not votes.get("forbid"):
            return None
        parts = [f"{self.case} want {self.label.expect[0]} got {', '.join(self.ids) or 'nothing'}"]
        parts += [self.error] if self.error else []
        parts += ["forbidden"] if votes.get("forbid") else []
        parts += ["fix missed"] if votes.get("fix") is False else []
        return "; ".join(parts)


def case_folders(root: Path) -> list[Path]:
    """The folders with a label below `root`, sorted by name."""
    return sorted(path.parent for path in root.glob(f"*/{LABEL}"))


def score(root: Path, catalog: Catalog) -> list[Row]:
    """All cases below `root`. Raises LabelError for a label that cannot be used."""
    labelled = [(folder, read_label(folder / LABEL)) for folder in case_folders(root)]
    if not labelled:
        raise LabelError(f"{root} holds no case.", f"A case is a folder with artefacts and a {LABEL}.")
    return [score_case(folder.name, folder, label, catalog) for folder, label in labelled]


def score_case(name: str, path: Path, label: Label, catalog: Catalog) -> Row:
    """One case, from a folder or a file."""
    began = time.perf_counter()
    try:
        report = diagnose_artefacts(path, catalog)
    except InfradocError as error:
        return Row(name, label, (), _failed(label), time.perf_counter() - began, str(error))
    ids, votes = judge(report["findings"], label)
    return Row(name, label, ids, votes, time.perf_counter() - began)


def judge(found: Sequence[Mapping[str, Any]], label: Label) -> tuple[tuple[str, ...], dict[str, bool]]:
    """The ids at warning or above of a report's findings, and the case's votes."""
    loud = [finding for finding in found if SEVERITY_RANK[finding["severity"]] >= 1]
    ids = tuple(finding["id"] for finding in loud)
    if label.healthy:
        return ids, {"top1": not ids, "false_alarm": bool(ids)}
    right = {*label.expect, *label.also_ok}
    votes = {
        "top1": bool(ids) and ids[0] in {label.expect[0], *label.also_ok},
        "any": any(name in right for name in ids),
        "forbid": any(name in label.forbid for name in ids),
    }
    if label.fix:
        first = next((finding for finding in loud if finding["id"] in right), None)
        votes["fix"] = _fixes(first["actions"] if first else (), label)
    return ids, votes


def _failed(label: Label) -> dict[str, bool]:
    if label.healthy:
        return {"top1": False, "false_alarm": True}
    votes = {"top1": False, "any": False, "forbid": True}
    return {**votes, "fix": False} if label.fix else votes


def shares(rows: Sequence[Row]) -> dict[str, tuple[float | None, int]]:
    """Each share with its number of cases; top1, any, forbid and fix are over the cases that are not healthy."""
    sick = [row for row in rows if not row.label.healthy]
    out: dict[str, tuple[float | None, int]] = {}
    for name in SHARES:
        group = rows if name == "false_alarm" else sick
        votes = [row.votes[name] for row in group if name in row.votes]
        out[name] = (sum(votes) / len(votes) if votes else None, len(votes))
    return out


def _fixes(actions: Sequence[Mapping[str, Any]], label: Label) -> bool:
    aliases = _aliases(label.system)
    changes: dict[str, str] = {}
    for action in actions[:2]:
        name = _normal(action["knob"])
        knob, opposite = aliases.get(name, (name, False))
        change = str(action["change"])
        # The first change of a knob counts: up and down is no advice.
        changes.setdefault(knob, _OPPOSITE.get(change, change) if opposite else change)
    return any(_same(label.fix[knob], change) for knob, change in changes.items() if knob in label.fix)


def _same(wanted: Any, change: str) -> bool:
    if isinstance(wanted, dict):
        return change in ("set", "increase", "decrease", "enable")
    return change in ("set", "fix") if wanted == "fix" else change == wanted


def _normal(knob: Any) -> str:
    return str(knob).strip().lower().lstrip("-").replace("-", "_").split(" ")[0].split("=")[0]


@lru_cache(maxsize=32)
def _aliases(system: str) -> dict[str, tuple[str, bool]]:
    """Each spelling of a knob -> (canonical name, does it switch the opposite way?); the case's engine wins."""
    knobs = load_plain(resources.files("infradoc_rules") / "knobs.yaml")["knobs"]
    plain = "".join(char for char in system.lower() if char.isalnum()).replace("tensorrt", "trt")
    table: dict[str, tuple[str, bool]] = {}
    for engine in sorted(_ENGINES, key=lambda name: name in plain):
        for name, knob in knobs.items():
            flags = knob.get(engine) or []
            for flag in [flags] if isinstance(flags, str) else flags:
                table[_normal(flag.removeprefix("not "))] = (name, flag.startswith("not "))
    return table | {name: (name, False) for name in knobs}


def read_label(path: Path) -> Label:
    """The label of a case. Raises LabelError naming the file and what is wrong with it."""
    try:
        data = load_marked(path).data
    except OSError as error:
        raise LabelError(f"{path} cannot be read: {error.strerror}.", "See docs/accuracy.md for its form.") from error
    except YamlError as error:
        why = " ".join(str(error).removeprefix(str(path)).lstrip(":, ").split()).rstrip(".")
        raise LabelError(f"{path} cannot be read: {why}.", "See docs/accuracy.md for its form.") from error
    if not isinstance(data, dict) or not isinstance(data.get("expect"), list) or not data["expect"]:
        raise LabelError(f"{path} has no `expect`.", "Write expect: [FINDING-ID], or expect: [healthy].")
    _check_names(path, data)
    label = Label(
        expect=_ids(path, data, "expect"),
        also_ok=_ids(path, data, "also_ok"),
        forbid=_ids(path, data, "forbid"),
        fix=_changes(path, data),
        system=str(data.get("system") or ""),
        version=str(data.get("version") or ""),
    )
    unknown = [name for name in _named(label) if name != HEALTHY and name not in finding_ids()]
    if unknown:
        raise LabelError(f"{path} names {unknown[0]!r}, which is no finding id.", "`infradoc rules list` lists them.")
    return label


def _check_names(path: Path, data: Mapping[str, Any]) -> None:
    """Raises LabelError for a misspelled field: what is not read would silently not be checked. Notes may be added."""
    for name in data:
        meant = slip_of(str(name), _FIELDS)
        if meant and meant not in data:
            raise LabelError(f"{path} has {str(name)[:40]!r}.", f"Did you mean {meant}?")


def _ids(path: Path, data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = data.get(name) or []
    if not isinstance(value, list):
        raise LabelError(f"{path}: `{name}` is no list.", f"Write {name}: [FINDING-ID, ...].")
    return tuple(map(str, value))


def _changes(path: Path, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The labelled changes by knob. Raises LabelError for what no action could ever match."""
    value = data.get("fix") or {}
    how = f"Write fix: {{KNOB: {'|'.join(_DIRECTIONS)}}} or {{KNOB: {{set: VALUE}}}}."
    if not isinstance(value, dict):
        raise LabelError(f"{path}: `fix` is no mapping.", how)
    for knob, change in value.items():
        if not (isinstance(change, dict) and "set" in change) and change not in _DIRECTIONS:
            raise LabelError(f"{path}: {knob!r} of `fix` has no direction.", how)
    _check_knobs(path, value)
    return value


def _check_knobs(path: Path, fix: Mapping[str, Any]) -> None:
    """Raises LabelError where no knob of `fix` is one that an action moves: the case could never be met.

    Beside one that is known, others may stand: a label names every change that would help, and advice knows a few.
    """
    known = {*_aliases(""), *(action.knob for action in ACTIONS.values())}
    names = [_normal(knob) for knob in fix]
    if not names or any(name in known for name in names):
        return
    meant = near(names[0], known)
    hint = f"Did you mean {meant}?" if meant else "docs/accuracy.md tells its form; knobs are those of the reports."
    raise LabelError(f"{path}: `fix` names {str(next(iter(fix)))[:60]!r}, which is no knob that advice moves.", hint)


def _named(label: Label) -> Iterator[str]:
    yield from label.expect
    yield from label.also_ok
    yield from label.forbid
