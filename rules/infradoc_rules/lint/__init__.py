"""Rule lint: everything that can be known to be wrong with a rule without running it.

`lint(folder)` gives one sentence per problem with file and line; `python -m infradoc_rules.lint [FOLDER]` prints them
and leaves with 1 when there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infradoc_rules.advise import ADVISERS
from infradoc_rules.cases import CasesError, load_cases
from infradoc_rules.catalog import CASES_SUFFIX, default_dir, rule_files
from infradoc_rules.conditions import TIME_NAMES
from infradoc_rules.lint.expressions import did_you_mean, match_problems, promql_problems
from infradoc_rules.promql import variables_in
from infradoc_rules.rule_file import RuleError, load_rule
from infradoc_rules.schema import Condition, Live, LiveBranch, MatchBranch, PostMortem, Rule, Text
from infradoc_rules.signals import signal_table
from infradoc_rules.texts import places
from infradoc_rules.vocabulary import finding_ids
from infradoc_rules.yaml_file import Key, Marked

_KINDS = ("fires", "quiet", "unknown")
_Path = tuple[Key, ...]


def lint(folder: Path | None = None) -> list[str]:
    """Problems of all rules below `folder` (the packaged catalog by default), in file order."""
    problems: list[str] = []
    seen: dict[str, Path] = {}
    for path in rule_files(folder or default_dir()):
        try:
            rule, marked = load_rule(path)
        except RuleError as error:
            problems += error.problems
            continue
        if rule.id in seen:
            problems.append(f"{path}, line {marked.line(('id',))}: id {rule.id} is also in {seen[rule.id]}")
        seen[rule.id] = path
        problems += [f"{path}, line {marked.line(where)}: {text}" for where, text in _rule_problems(rule, path, marked)]
    if not seen and not problems:
        problems.append(f"{folder or default_dir()}: no rule files here")
    return problems


def _rule_problems(rule: Rule, path: Path, marked: Marked) -> Iterator[tuple[_Path, str]]:
    yield from _identity_problems(rule, path)
    yield from _reference_problems(rule)
    yield from _threshold_problems(rule)
    yield from _condition_problems(rule)
    yield from _text_problems(rule)
    yield from _verify_problems(rule)
    yield from _cases_problems(rule, path)


def _identity_problems(rule: Rule, path: Path) -> Iterator[tuple[_Path, str]]:
    known = finding_ids()
    if rule.id not in known:
        yield ("id",), f"{rule.id} is no finding id of vocabulary.yaml{did_you_mean(rule.id, known)}"
    elif path.parent.name != known[rule.id].area:
        yield ("id",), f"{rule.id} belongs into the folder {known[rule.id].area}, not {path.parent.name}"
    if path.name != f"{rule.id}.yaml":
        yield ("id",), f"the file is named {path.name}, its id asks for {rule.id}.yaml"


def _reference_problems(rule: Rule) -> Iterator[tuple[_Path, str]]:
    for index, name in enumerate(rule.explains):
        if name not in finding_ids() or name == rule.id:
            yield (
                ("explains", index),
                f"explains {name}, which is no other finding id{did_you_mean(name, finding_ids())}",
            )
    for index, name in enumerate(rule.advised):
        if name not in ADVISERS:
            where: _Path = ("advise", index) if name in rule.advise else ("post_mortem", "advise")
            yield where, f"advises {name}, which is no sizing function{did_you_mean(name, ADVISERS)}"


def _threshold_problems(rule: Rule) -> Iterator[tuple[_Path, str]]:
    used = frozenset[str]().union(*(variables_in(text) for _, text, _ in _expressions(rule)))
    for name in rule.thresholds:
        if name in TIME_NAMES:
            yield ("thresholds", name), f"threshold {name} hides the built-in ${name}"
        elif name not in used:
            yield ("thresholds", name), f"threshold {name} is used in no condition"


def _expressions(rule: Rule) -> Iterator[tuple[_Path, str, str]]:
    """(path, text, kind) of every expression; kind is condition, match or value."""
    for where, item in _conditions(rule):
        if item.expr is not None:
            yield where, item.expr, "condition"
        if item.match is not None:
            yield where, item.match, "match"
    for name, text in rule.values.items():
        yield ("values", name), text, "value"
    for name, text in (rule.post_mortem.values if rule.post_mortem is not None else {}).items():
        yield ("post_mortem", "values", name), text, "match"


def _conditions(rule: Rule) -> Iterator[tuple[_Path, Condition]]:
    parts: tuple[tuple[str, Live | PostMortem | None], ...] = (("live", rule.live), ("post_mortem", rule.post_mortem))
    for key, part in parts:
        if part is None:
            continue
        branches: tuple[LiveBranch | MatchBranch, ...] = part.branches
        for number, branch in enumerate(branches):
            start: _Path = (key, "any", number, "when") if part.any else (key, "when")
            for index, item in enumerate(branch.when):
                yield (*start, index), item
    for key, signs in (("supports", rule.supports), ("against", rule.against)):
        for index, sign in enumerate(signs):
            yield (key, index), sign


def _condition_problems(rule: Rule) -> Iterator[tuple[_Path, str]]:
    names = {**rule.thresholds, **dict.fromkeys(TIME_NAMES, 10.0)}
    for where, text, kind in _expressions(rule):
        found = match_problems(text, names) if kind == "match" else promql_problems(text, names, kind == "condition")
        for problem in found:
            yield where, problem
    for where, item in _conditions(rule):
        if where[0] == "live" and item.match is not None:
            yield where, "a live condition is an expr over series; a match belongs under post_mortem"
        if where[0] == "post_mortem" and item.expr is not None:
            yield where, "a post_mortem condition is a match over events and facts, not an expr"
        if item.signal is not None and item.signal not in signal_table().signals:
            yield (
                where,
                f"signal {item.signal} is not in signals.yaml{did_you_mean(item.signal, signal_table().signals)}",
            )


def _text_problems(rule: Rule) -> Iterator[tuple[_Path, str]]:
    known = set(rule.thresholds) | set(TIME_NAMES) | set(rule.values)
    own: list[tuple[_Path, Text, set[str]]] = [
        ((name,), getattr(rule, name), known) for name in ("title", "cause", "impact", "falsifier")
    ]
    past = rule.post_mortem
    if past is not None and past.cause is not None:
        own.append((("post_mortem", "cause"), past.cause, known | set(past.values)))
    own += [
        ((*where, "text"), item.text, known | {"value"}) for where, item in _conditions(rule) if item.text is not None
    ]
    for where, text, allowed in own:
        if not any("\u4e00" <= char <= "\u9fff" for char in text.zh):
            yield (*where, "zh"), f"the Chinese text {text.zh!r} holds no Chinese"
        for name in sorted((places(text.en) | places(text.zh)) - allowed):
            yield where, f"the text fills in {name}, which nothing gives{did_you_mean(name, allowed)}"
    filled = frozenset[str]().union(*(places(text.en) | places(text.zh) for _, text, _ in own))
    for where, *_ in _expressions(rule):
        if "values" in where and where[-1] not in filled:
            yield where, f"value {where[-1]} is filled into no text"
    if not rule.false_alarms:
        yield ("false_alarms",), "false_alarms is empty: say what looks like this and is none"


def _verify_problems(rule: Rule) -> Iterator[tuple[_Path, str]]:
    for index, metric in enumerate(rule.verify.metrics):
        where: _Path = ("verify", "metrics", index)
        spec = signal_table().signals.get(metric.signal)
        if spec is None:
            yield (
                where,
                f"verify: {metric.signal} is not in signals.yaml{did_you_mean(metric.signal, signal_table().signals)}",
            )
        elif (metric.quantile is not None) != (spec.kind == "histogram"):
            yield where, f"verify: quantile goes with a histogram; {metric.signal} is a {spec.kind}"
        elif metric.request_class is not None and "class" not in spec.labels:
            yield where, f"verify: {metric.signal} has no label class"


def _cases_problems(rule: Rule, path: Path) -> Iterator[tuple[_Path, str]]:
    file = path.with_name(path.stem + CASES_SUFFIX)
    if not file.exists():
        yield (), f"there is no cases file {file.name} beside it"
        return
    try:
        kinds = {case.expect for case in load_cases(file)}
    except CasesError as error:
        yield (), str(error)
        return
    for kind in _KINDS:
        if kind not in kinds:
            yield (), f"{file.name} has no case that expects {kind}"
