"""The small commands: rules, playbook, serve and model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infradoc.cli import app, engine
from infradoc_rules.catalog import load_catalog


def test_rules_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["rules", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["RULE", "SEVERITY", "LOOKS", "AT", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == [rule.id for rule in load_catalog().rules]
    assert app.dispatch(["rules", "list", "--lang", "zh"]) == 0
    assert any("\u4e00" <= char <= "\u9fff" for char in capsys.readouterr().out)


def test_rules_lint_and_test_pass_on_the_packaged_rules(capsys: pytest.CaptureFixture[str]) -> None:
    rules = len(load_catalog().rules)
    assert app.dispatch(["rules", "lint"]) == 0, capsys.readouterr().out
    assert f"{rules} rules, all sound" in capsys.readouterr().err
    assert app.dispatch(["rules", "test"]) == 0, capsys.readouterr().out
    assert f" cases of {rules} rules, all as expected" in capsys.readouterr().err


def test_rules_lint_and_test_tell_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("schema: 1\nid: x\nseverty: warning\n")
    assert app.dispatch(["rules", "lint", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "severty" in told.out and "1 rule, 6 problems" in told.err
    assert app.dispatch(["rules", "test", str(tmp_path)]) == 2
    assert "x.yaml, line 1" in capsys.readouterr().err
    assert app.dispatch(["rules", "lint", str(tmp_path / "no")]) == 2


def test_playbook(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["playbook"]) == 0
    assert "kv-thrashing-preemption" in capsys.readouterr().out.split()
    assert app.dispatch(["playbook", "kv-thrashing-preemption"]) == 0
    english = capsys.readouterr().out
    assert app.dispatch(["playbook", "kv-thrashing-preemption", "--lang", "zh"]) == 0
    assert capsys.readouterr().out != english != ""
    assert app.dispatch(["playbook", "kv-thrashing"]) == 2
    assert "did you mean 'kv-thrashing-preemption'?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["serve", "m", "--port", "0"], ["model", "get", "smollm2-135m"]])
def test_engine_commands_become_the_engine(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(engine.os, "execv", lambda path, argv: called.append((path, argv)) or sys.exit(0))
    assert app.dispatch(arguments) == 0
    assert called == [(sys.executable, [sys.executable, "-P", "-m", "infradoc_engine", *arguments])]


def test_engine_without_its_extra_gives_the_install_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None if name == "torch" else object())
    for arguments in (["serve"], ["model", "get", "x"]):
        assert app.dispatch(arguments) == 2
        err = capsys.readouterr().err
        assert "pip install 'infradoc[engine]'" in err and "torch" in err and err.count("\n") == 1


def test_model_without_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["model"]) == 2
    assert "infradoc model get" in capsys.readouterr().err
    assert app.dispatch(["model", "--help"]) == 0
