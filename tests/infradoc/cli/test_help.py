"""What a newcomer reads: every command's help has an example, and the next step is named where one is likely."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from infradoc.cli import app
from infradoc.cli.next_steps import after_diagnosis
from infradoc.report.build import unknown_report

COMMANDS = [name for name in app.commands() if name not in ("serve", "model")]  # tests of their own: the engine's


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^examples?:\n(  .*\n)*  .*infradoc " + name, text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_it_is_explained(name: str) -> None:
    parser: Any = import_module(f"infradoc.cli.{app.commands()[name].module}").parser()
    for action in parser._actions:
        assert action.help or action.metavar or action.choices, action
        assert action.help or not action.option_strings, action.option_strings


def test_model_shows_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["model", "--help"]) == 0
    assert "example:\n  infradoc model get smollm2-135m" in capsys.readouterr().out


def test_help_is_short() -> None:
    lines = app.help_text().splitlines()
    assert all(len(line) <= 120 for line in lines)
    assert all(len(command.summary) <= 70 for command in app.commands().values())


@pytest.mark.parametrize("goal", ["setup", "demo"])
def test_after_make_setup(goal: str) -> None:
    folder = Path(__file__).parents[3]
    done = subprocess.run(["make", "-n", goal], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert ("infradoc diagnose http" in done.stdout) == (goal == "setup")


@pytest.mark.parametrize(("model", "fits"), [("llama-3.1-8b", True), ("llama-3.1-70b", False)])
def test_after_a_fit(model: str, fits: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for lang in ("en", "zh"):
        assert app.dispatch(["fit", model, "--gpu", "H100", "--max-model-len", "8192", "--lang", lang]) in (0, 20)
        assert ("infradoc diagnose" in capsys.readouterr().out.splitlines()[-1]) == fits


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_after_a_diagnosis(lang: str) -> None:
    report = unknown_report("x", [], None)
    assert after_diagnosis("http://h:1", report, True, lang) is None
    report["findings"] = [{"id": "kv-thrashing-preemption"}, {"id": "queue-saturation"}]
    live = after_diagnosis("http://h:1/a b", report, True, lang)
    kept = after_diagnosis("incident/", report, False, lang)
    assert live is not None and kept is not None
    assert "infradoc fix 'http://h:1/a b' --finding kv-thrashing-preemption" in live
    assert "infradoc playbook kv-thrashing-preemption" in live and "infradoc playbook kv-thrash" in kept
    assert all(line.count(" --lang zh") == (line.count("infradoc ") if lang == "zh" else 0) for line in (live, kept))
    assert "fix" not in kept and "queue" not in live + kept
    assert live.startswith("Next:") == (lang == "en")
