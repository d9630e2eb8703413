"""The report for people: both languages, complete, without padding in files."""

from __future__ import annotations

import io
import re

import pytest

from infradoc.report.build import finding_part, unknown_report
from infradoc.report.text import action_line, make_console, print_report
from infradoc.report.words import _EN, _ZH, words
from infradoc_rules.actions import ACTIONS
from infradoc_rules.model import Action, Evidence, Finding


def shown(lang: str, width: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", width)
    actions = (
        Action("kv_pool_tokens", "increase", "more room", 3072, 14848, "--num-gpu-blocks-override 116", cost="memory"),
        Action("client_max_tokens", "decrease", "", None, None),
    )
    evidence = (
        Evidence("95% in use", "metrics", "llm_kv_cache_usage_ratio", 0.95, "ratio", 0.5),
        Evidence("but", weight=-1.0),
    )
    finding = Finding(
        "kv-thrashing-preemption",
        "critical",
        0.9,
        "Title [x]",
        "cause",
        "impact",
        "false",
        "root",
        ("queue-saturation",),
        evidence,
        actions,
    )
    report = unknown_report("http://h:1", ["gpu_utilization_ratio: none"], "vllm")
    report["status"], report["findings"] = "unhealthy", [finding_part(finding)]
    report["vitals"]["ttft_p99_seconds"], report["vitals"]["kv_usage_ratio"] = 0.25, 0.5
    out = io.StringIO()
    print_report(report, lang, make_console(out))
    return out.getvalue()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", ["60", "120"])
def test_everything_is_told(lang: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(lang, width, monkeypatch)
    flat = " ".join(text.split())
    for part in (
        "Title [x]",
        "90%",
        "95% in use",
        "--num-gpu-blocks-override 116",
        "3072 -> 14848",
        "queue-saturation",
        "250 ms",
        "50%",
    ):
        assert part in flat, part
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.split("\n"))
    page = "infradoc playbook kv-thrashing-preemption" + (" --lang zh" if lang == "zh" else "")
    assert page in " ".join(text.split())
    assert ("证据" in text) == (lang == "zh") and ("Evidence" in text) == (lang == "en")


def test_languages_have_the_same_words() -> None:
    assert _EN.keys() == _ZH.keys()
    for key in _EN:
        assert sorted(re.findall(r"\{[^}]*\}", _EN[key])) == sorted(re.findall(r"\{[^}]*\}", _ZH[key])), key


@pytest.mark.parametrize(
    ("lang", "line"),
    [("en", "move another program off the device"), ("zh", "把其他程序移出该设备")],
)
def test_what_has_no_flag_is_said_in_words(lang: str, line: str) -> None:
    """And without a word of a restart: it is not the server that is changed."""
    action = Action("other_process", "disable", "why", risk="disruptive", name="stop_other_process")
    [part] = finding_part(Finding("x", "warning", 0.5, "t", "c", "i", "f", actions=(action,)))["actions"]
    assert action_line(part, words(lang)) == line


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (
            Action("max_num_seqs", "decrease", "why", 16, 8, "--max-num-seqs 8"),
            "(max_num_seqs 16 -> 8; needs a restart)",
        ),
        (Action("max_num_seqs", "decrease", "why", 16, None, "--max-num-seqs"), "(max_num_seqs 16; needs a restart)"),
        (Action("host_ram", "increase", "why", 8 << 30, 12 << 30), "(host_ram 8.0 GiB -> 12.0 GiB)"),
    ],
)
def test_what_changes_is_said_with_its_unit(action: Action, line: str) -> None:
    [part] = finding_part(Finding("x", "warning", 0.5, "t", "c", "i", "f", actions=(action,)))["actions"]
    assert action_line(part, words("en")).endswith(line)


def test_a_flag_to_be_dropped_is_said_in_chinese() -> None:
    action = Action("enforce_eager", "disable", "why", True, False, "drop --enforce-eager")
    [part] = finding_part(Finding("x", "warning", 0.5, "t", "c", "i", "f", actions=(action,)))["actions"]
    assert action_line(part, words("zh")).startswith("去掉 --enforce-eager")


def test_no_action_shows_a_knob_s_internal_name() -> None:
    """Also one that is not of the closed list."""
    for name, spec in [*ACTIONS.items(), ("", ACTIONS["restart_engine"])]:
        action = Action(spec.knob, spec.change, "why", name=name)
        [part] = finding_part(Finding("x", "warning", 0.5, "t", "c", "i", "f", actions=(action,)))["actions"]
        assert "_" not in action_line(part, words("en"))
