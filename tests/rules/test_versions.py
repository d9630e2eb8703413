"""Flags as the target's version has them."""

from __future__ import annotations

import pytest

from infradoc_rules.knobs import knob_table
from infradoc_rules.versions import Running, version_of


@pytest.mark.parametrize(
    ("spelling", "version", "there"),
    [
        ("--swap-space", "0.8.5", True),
        ("--swap-space", "0.11.0", False),
        ("--num-scheduler-steps", "0.6.3", True),
        ("--num-scheduler-steps", "0.10.1", False),
        ("--kv-cache-memory-bytes", "0.9.0", False),
        ("--max-model-len", "0.2.0", True),  # not listed: in all versions
    ],
)
def test_a_spelling_exists_in_some_versions(spelling: str, version: str, there: bool) -> None:
    assert Running("vllm", version).has(spelling) is there


def test_of_an_unknown_version_it_is_not_known() -> None:
    assert Running("vllm", None).has("--swap-space") is None and version_of("main") is None


def test_tgi_renamed_its_prompt_limit() -> None:
    old, new = Running("tgi", "1.4.0"), Running("tgi", "3.3.0")
    flag = knob_table().flag
    assert "--max-input-length" in str(flag("tgi", "max_input_tokens", 2048, running=old))
    assert "--max-input-tokens" in str(flag("tgi", "max_input_tokens", 2048, running=new))
