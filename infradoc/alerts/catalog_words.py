"""What the catalog of rules knows about a finding id: its title in both languages, and its area."""

from __future__ import annotations

from functools import lru_cache

from infradoc_rules.catalog import default_dir, load_catalog, rule_files


@lru_cache(maxsize=1)
def _titles() -> dict[str, tuple[str, str]]:
    return {rule.id: (rule.title.get("en"), rule.title.get("zh")) for rule in load_catalog().rules}


@lru_cache(maxsize=1)
def _areas() -> dict[str, str]:
    return {path.stem: path.parent.name for path in rule_files(default_dir())}


def title_of(finding: str, lang: str) -> str:
    """The rule's title, "" for a finding that no rule of the catalog makes."""
    found = _titles().get(finding, ("", ""))
    return found[1] if lang == "zh" else found[0]


def area_of(finding: str) -> str:
    """The folder of the rule, such as `kv-cache`; "" for a finding that no rule of the catalog makes."""
    return _areas().get(finding, "")
