"""What fix and undo say: every text in both languages, and no English left in what a Chinese reader gets."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import infradoc.cli.fix
import infradoc.cli.undo
import infradoc.remediation
from infradoc.cli import undo
from infradoc.model import Plan, PlanStep
from infradoc.remediation.actions.all import ACTIONS
from infradoc.remediation.actions.chinese import LOSERS
from infradoc.remediation.admin import EngineState
from infradoc.remediation.guard import Guard
from infradoc.remediation.journal import ChangeRecord, Journal
from infradoc.remediation.measure import ClientMeasured
from infradoc.remediation.plan import Context, make_plan
from infradoc.remediation.run import Outcome
from infradoc.remediation.table import outcome_lines, plan_lines, verdict_line
from infradoc.remediation.verify import Case, judge
from infradoc.remediation.words import TEXTS, check_text, say
from infradoc_rules.actions import ACTIONS as SPECS
from infradoc_rules.schema import Verify, VerifyMetric

Make = Callable[..., Any]
CHINESE = re.compile("[\u4e00-\u9fff]")
# Two English words in a row; commands in `...` are the same in every language.
ENGLISH = re.compile(r"\b[A-Za-z]?[a-z]{2,} [a-z]{2,}\b")
NEITHER = {"and", "step_flag", "stays", "took", "numbers", "between", "noted", "then", "seconds_cell", "step", "met"}


def english_in(text: str) -> list[str]:
    return ENGLISH.findall(re.sub(r"`[^`]*`|infradoc (fix|undo|diagnose|bench)|bench --client-out|token/\S", "", text))


@pytest.mark.parametrize("key", TEXTS)
def test_both_languages_take_the_same_values(key: str) -> None:
    english, chinese = TEXTS[key]
    fields = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in (english, chinese)]
    spare = {"word"} if key == "verdict" else set()
    assert fields[0] == fields[1] - spare
    assert CHINESE.search(chinese) or key in NEITHER
    assert not CHINESE.search(english) and not english_in(chinese)
    assert english.endswith(".") == chinese.endswith("。") or not english


def test_every_text_is_there_and_used() -> None:
    folder = Path(infradoc.remediation.__file__).parent
    sources = [*folder.rglob("*.py"), Path(infradoc.cli.fix.__file__), Path(infradoc.cli.undo.__file__)]
    strings: set[str] = set()
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
                "say",
                "_say",
            ):
                keys = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                assert all(key in TEXTS or not isinstance(key, str) for key in keys), (path.name, keys)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name != "words.py":
                strings.add(node.value)
    words = (folder / "words.py").read_text(encoding="utf-8")
    unused = [key for key in TEXTS if key not in strings and words.count(f'"{key}"') < 2]
    known = {"info", "warning", "critical", "increase", "decrease", "enable", "disable", "set", "read_only"}
    known |= {"reversible", "disruptive", "fixed", "not_fixed", "worse", "inconclusive"}
    left = [key for key in unused if key not in known and not key.startswith(("llm_", "torch_", "state_"))]
    assert not left


def test_every_action_names_its_loser_in_both() -> None:
    assert set(LOSERS) == set(ACTIONS) == set(SPECS)
    assert all(CHINESE.search(text) and not english_in(text) for text in LOSERS.values())


def test_a_chinese_plan_holds_no_english(make_action: Make) -> None:
    for name, spec in SPECS.items():
        action = make_action(name, spec.knob, spec.change, None, None)
        step = PlanStep("some-finding", action, None)
        lines = plan_lines(Plan("t", (step,), (("x", "。"),)), "zh")
        assert not [line for line in lines if english_in(line)], lines


@pytest.fixture
def reasons(engine_state: EngineState, make_action: Make, make_finding: Make, make_change: Make) -> list[str]:
    """Why steps are left out, of every kind that a plan knows."""
    wanted = [
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 384, None),
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 384, 200),
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 384, 384),
        ("raise_kv_capacity", "kv_pool_tokens", "increase", 384, 2**40),
        ("lower_block_size", "block_size", "decrease", 16, 8),
        ("reject_long_prompts", "truncation_policy", "set", "left", "never"),
        ("lower_max_num_seqs", "max_num_seqs", "decrease", 16, 8),
        ("raise_max_num_batched_tokens", "max_num_batched_tokens", "increase", 512, 1024),
        ("lower_request_rate", "request_rate", "decrease", None, None),
        ("restart_engine", "engine_restart", "enable", None, None),
        ("raise_shm_size", "shm_size", "increase", None, None),
        ("no_such_action", "nothing", "set", None, 1),
    ]
    changes = [
        make_change("max_num_seqs", 8, 16, 1900.0),
        make_change("max_num_batched_tokens", 512, 1024, 1000.0, last="undone"),
    ]
    findings = [make_finding(f"f{place}", make_action(*row)) for place, row in enumerate(wanted)]
    context = Context("http://x:1", Guard(changes, lang="zh"), 2000.0, engine_state, lang="zh")
    plan = make_plan(findings, context)
    assert len(plan.refused) + len(plan.steps) >= len(wanted) - 1
    return [reason for _, reason in plan.refused]


def test_why_not_is_said_in_chinese(reasons: list[str]) -> None:
    assert len(reasons) >= 11
    assert all(CHINESE.search(reason) and not english_in(reason) for reason in reasons), reasons


def test_an_outcome_in_chinese(make_records: Make) -> None:
    metric = VerifyMetric(signal="client_time_to_first_token_seconds", quantile=0.5, at_most=0.8)
    verify = Verify(metrics=(metric,), errors_at_most=0.05)
    before, slow = make_records(0, 15), make_records(30, 50, ttft=3.0)
    for after, quiet, name in ((make_records(30, 50, ttft=0.1), True, "fixed"), (slow, False, "worse"), ([], None, "")):
        case = Case(ClientMeasured(before, 0, 15), ClientMeasured(after, 30, 50), quiet, "a-rule", verify, lang="zh")
        verdict = judge(case)
        assert verdict.verdict == (name or "inconclusive")
        outcome = Outcome(verdict, case.before, case.after, None, 1.0, True, False, say("zh", "no_change"))
        lines = [*outcome_lines(outcome, "zh"), verdict_line(verdict, "zh")]
        assert not [line for line in lines if english_in(line)], lines
        assert verdict.verdict in lines[-1] and CHINESE.search(lines[-1])


def test_checks_are_said_as_people_say_them() -> None:
    assert check_text("en", "chat client_time_to_first_token_seconds P90") == "chat TTFT P90"
    assert check_text("zh", "share of errors at most 5%") == "错误比例不超过 5%"
    assert check_text("zh", "kv-thrashing-preemption is quiet") == "kv-thrashing-preemption 不再触发"
    assert (
        check_text("en", "share of answers to cut prompts at most 1%") == "share of answers to cut prompts at most 1%"
    )


@pytest.mark.parametrize("last", ["intent", "applied", "failed", "undo_intent", "undone", "verdict"])
def test_the_list_of_changes_in_chinese(make_change: Make, journal: Journal, last: str) -> None:
    change: ChangeRecord = make_change("max_num_seqs", 16, 8, 1000.0, last)
    text = undo.line(change, "zh")
    assert CHINESE.search(text) and not english_in(text)
