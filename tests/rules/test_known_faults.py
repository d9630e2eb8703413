"""Upgrades are advised with the version that mends a known fault, and not otherwise."""

from __future__ import annotations

import re

import pytest

from infradoc_rules.advise import Advice
from infradoc_rules.advise.startup_limits import upgrade_for_length
from infradoc_rules.advise.startup_sharing import upgrade_for_sharing
from infradoc_rules.advise.upgrade import upgrade_for
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.known_faults import faults, known_fault, newer_release
from infradoc_rules.maps import SYSTEMS as MAPPED
from infradoc_rules.model import Event, Fact
from infradoc_rules.versions import version_of
from infradoc_rules.vocabulary import finding_ids


def _advice(system, version, lang="en", events=(), **facts):
    known = {name.replace("__", "."): Fact(name, value, "derived", None) for name, value in facts.items()}
    if version is not None:
        known["target.version"] = Fact("target.version", version, "log", None)
    return Advice(MemoryFrame(0.0, facts=known, events=events, system=system), {}, lang)


def _pool(name):
    return (Event("kv_check_failed", None, {"pool": name}, None, None),)


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.finding}-{fault.fixed}")
def test_a_fault_is_well_formed(fault):
    assert fault.finding in finding_ids() and fault.engine in (*MAPPED, "trtllm", "lmdeploy", "ollama")
    mended = version_of(fault.fixed, fault.engine)
    assert mended is not None and (fault.since is None or fault.since < mended)
    assert re.search(r"^[\w.-]+/[\w.-]+(#\d+|@v[\d.]+:\S+)", fault.reference)
    assert fault.reason["en"] and re.search("[\u4e00-\u9fff]", fault.reason["zh"])
    assert not fault.spans(mended)


@pytest.mark.parametrize(
    ("finding", "advice", "to", "said"),
    [
        ("memory-leak", _advice("vllm", "0.22.0", growth__multimodal=False), ">=0.26.0", "a known fault before 0.26.0"),
        ("memory-leak", _advice("vllm", "0.22.0"), ">=0.26.0", "perhaps"),
        ("memory-leak", _advice("vllm", "0.7.3", growth__multimodal=True), ">=0.8.0", "256"),
        (
            "memory-leak",
            _advice("vllm", "0.7.2", growth__multimodal=False, target__engine_api="V0"),
            ">=0.8.0",
            "#14326",
        ),
        ("memory-leak", _advice("sglang", "0.5.6", sglang__hierarchical_cache=True), ">=0.5.10", "#21624"),
        ("memory-leak", _advice("sglang", "0.5.6", sglang__hierarchical_cache=False), None, "none that is known fits"),
        ("memory-leak", _advice("vllm", "0.11.2"), None, "none that is known fits"),
        ("memory-leak", _advice("lmdeploy", None), None, "0.18.0"),
        ("kv-pool-accounting-bug", _advice("sglang", "0.5.7", events=_pool("mamba")), ">=0.5.10", "#21404"),
        ("kv-pool-accounting-bug", _advice("sglang", "0.5.3.post3", events=_pool("token")), ">=0.5.4", "#11981"),
        ("fragmentation-allocator", _advice("vllm", "0.20.0", oom__at_start=True), ">=0.21.0", "#41268"),
        ("cpu-tokenization-bottleneck", _advice("trtllm", None), ">=1.3.0", "perhaps a known fault"),
    ],
)
def test_the_version_and_the_reason_are_named(finding, advice, to, said):
    action = upgrade_for(finding, advice)
    assert action is not None and action.to_value == to and said in action.why
    assert (action.flag is None) is (to is None) and (to is None or action.flag.endswith(to))


@pytest.mark.parametrize(
    ("finding", "advice"),
    [
        ("memory-leak", _advice("vllm", "0.33.0")),  # the newest that was looked at
        ("memory-leak", _advice(None, None)),
        ("fragmentation-allocator", _advice("vllm", "0.21.0", oom__at_start=True)),  # mended there
        ("fragmentation-allocator", _advice("vllm", "0.20.0", oom__at_start=False)),  # another symptom
        ("fragmentation-allocator", _advice("sglang", "0.5.3", oom__at_start=True)),  # another engine
        ("kernel-shared-memory-limit", _advice("vllm", "0.24.0")),  # another kernel
        ("oom-weights-do-not-fit", _advice("vllm", "0.2.0")),
    ],
)
def test_otherwise_no_upgrade_is_said(finding, advice):
    assert upgrade_for(finding, advice) is None


@pytest.mark.parametrize(
    ("adviser", "advice", "to"),
    [
        (upgrade_for_sharing, _advice("vllm", "0.2.6"), ">=0.3.1"),
        (upgrade_for_sharing, _advice("vllm", "0.8.2", target__engine_api="V1"), ">=0.9.1"),
        (upgrade_for_length, _advice("vllm", "0.3.3"), ">=0.4.0"),
    ],
)
def test_advisers_with_numbers_of_their_own_say_what_the_table_says(adviser, advice, to):
    finding = "max-model-len-above-model" if adviser is upgrade_for_length else "oom-gpu-shared-with-other-process"
    assert adviser(advice).to_value == upgrade_for(finding, advice).to_value == to


def test_a_version_where_the_fault_is_mended_is_told_of_no_fault():
    for fault in faults():
        assert known_fault(fault.finding, MemoryFrame(0.0, system=fault.engine), "99.0") is None


def test_only_findings_of_the_software_look_at_newer_releases():
    assert newer_release("memory-leak", "vllm", "0.11.2") and newer_release("kv-pool-accounting-bug", "sglang", None)
    assert newer_release("oom-no-kv-blocks", "vllm", "0.11.2") is None
    assert (
        newer_release("memory-leak", "vllm", "0.40.0") is None and newer_release("memory-leak", "other", None) is None
    )


def test_the_texts_are_in_both_languages():
    for version in ("0.22.0", "0.11.2"):
        assert re.search("[\u4e00-\u9fff]", upgrade_for("memory-leak", _advice("vllm", version, "zh")).why)
