"""Rules, playbooks and actions together: loads them, and checks that each names only what the others have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib.util import find_spec
from pathlib import Path

import infradoc_playbooks
import infradoc_playbooks.lint
from infradoc.errors import InfradocError
from infradoc_rules.actions import ACTIONS
from infradoc_rules.advise import ADVISERS
from infradoc_rules.catalog import Catalog, load_catalog
from infradoc_rules.rule_file import RuleError
from infradoc_rules.vocabulary import finding_ids


class CatalogError(InfradocError):
    """A rule, playbook or action that cannot be used."""


def load_rules(folder: Path | None = None) -> Catalog:
    """The rules (the packaged ones by default). Raises CatalogError with the first problems."""
    try:
        return load_catalog(folder)
    except RuleError as error:
        shown = "; ".join(error.problems[:3])
        hint = "Run `infradoc rules lint` for all of it."
        raise CatalogError(f"The rules cannot be loaded: {shown}.", hint) from error


def carried_out_actions() -> Collection[str] | None:
    """Names of actions that remediation knows how to treat; None when that part is not installed."""
    if find_spec("infradoc.remediation.actions.all") is None:
        return None
    from infradoc.remediation.actions.all import ACTIONS as IMPLEMENTED

    return set(IMPLEMENTED)


def check_catalog(catalog: Catalog) -> list[str]:
    """One sentence for every name that leads nowhere; empty when rules, playbooks and actions fit together."""
    problems = [problem for rule in catalog.rules for problem in rule_problems(rule.id, rule.explains, rule.advised)]
    problems += [problem for name in infradoc_playbooks.ids() for problem in playbook_problems(name)]
    problems += infradoc_playbooks.lint.problems()
    return problems + action_problems(carried_out_actions())


def rule_problems(rule_id: str, explains: Iterable[str], advise: Iterable[str]) -> list[str]:
    """What a rule names that is not there."""
    known = finding_ids()
    problems = [] if rule_id in known else [f"{rule_id}: is no finding id of vocabulary.yaml."]
    if rule_id not in infradoc_playbooks.ids():
        problems.append(f"{rule_id}: has no playbook.")
    problems += [f"{rule_id}: explains {name}, which is no finding id." for name in explains if name not in known]
    return problems + [
        f"{rule_id}: advises {name}, which is no sizing function." for name in advise if name not in ADVISERS
    ]


def playbook_problems(name: str) -> list[str]:
    """What a playbook names that is not there."""
    problems = [] if name in finding_ids() else [f"playbook {name}: is no finding id."]
    if (name, "en") in infradoc_playbooks.missing():  # the lint of the pages says so
        return problems
    unknown = [action for action in infradoc_playbooks.actions(name) if action not in ACTIONS]
    return problems + [f"playbook {name}: names {action}, which is no known action." for action in unknown]


def action_problems(carried_out: Collection[str] | None) -> list[str]:
    """Actions of the closed list that remediation does not treat, and the other way round."""
    if carried_out is None:
        return []
    problems = [f"action {name}: remediation does not treat it." for name in sorted(set(ACTIONS) - set(carried_out))]
    unknown = sorted(set(carried_out) - set(ACTIONS))
    return problems + [
        f"action {name}: remediation treats it, but the closed list has no such name." for name in unknown
    ]
