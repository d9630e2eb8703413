"""No sentence ends twice: "..", ". .", ":." and the like in anything that people read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import infradoc
import infradoc_engine
import infradoc_playbooks
import infradoc_rules
from infradoc.cli import app
from infradoc.errors import InfradocError

DOUBLE = re.compile(r"(?<![.])\.\.(?![./\w])|\. \.(?!\w)|[:;,]\.(?![\w.])|;;|,,|。。|[，；：、]。|\.。|。\.")
PACKAGES = [Path(str(package.__file__)).parent for package in (infradoc, infradoc_engine, infradoc_rules)]
MODULES = sorted(path for folder in PACKAGES for path in folder.rglob("*.py"))
CATALOG = sorted((PACKAGES[2] / "catalog").rglob("*.yaml"))


def doubled(text: str) -> list[str]:
    """Where two marks meet, with what is around them; code in `...` is no sentence."""
    text = re.sub(r"`[^`\n]*`", "x", text)
    return [text[max(0, found.start() - 30) : found.end() + 10] for found in DOUBLE.finditer(text)]


def sentences(path: Path) -> Iterator[str]:
    """Texts of a module that have a space, so are no pattern or name; what is filled in is an x. No docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    remarks = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in remarks:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def looks_like_a_pattern(text: str) -> bool:
    return bool(re.search(r"\(\?|\\[a-z.]|\[\^|=~", text))


def texts_of(data: Any) -> Iterator[str]:
    """Every English and Chinese text of a rule."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key in ("en", "zh") and isinstance(value, str):
                yield value
            yield from texts_of(value)
    elif isinstance(data, list):
        for item in data:
            yield from texts_of(item)


def test_it_sees_what_it_should() -> None:
    for text in ("Done..", "Give it. .", "Not so:.", "a;.", "好。。", "a,, b"):
        assert doubled(text), text
    for text in ("list|...", "a ... b", "../x", "1..2", "in .venv: .venv/bin", "`..`", "so; .toml is read", "wait..."):
        assert not doubled(text), text


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_texts_of_the_code(folder: Path) -> None:
    found = {
        (path.name, one)
        for path in MODULES
        if path.is_relative_to(folder)
        for text in sentences(path)
        if not looks_like_a_pattern(text)
        for one in doubled(text)
    }
    assert not found


def test_texts_of_the_rules() -> None:
    found = []
    for path in CATALOG:
        if not path.name.endswith(".cases.yaml"):
            texts = list(texts_of(yaml.safe_load(path.read_text(encoding="utf-8"))))
            assert len(texts) >= 8, path.name
            found += [(path.name, one) for text in texts for one in doubled(text)]
    assert len(CATALOG) > 80 and not found


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_playbooks(lang: str) -> None:
    names = [*infradoc_playbooks.ids(), *infradoc_playbooks.mechanisms()]
    pages = {name: re.sub(r"```.*?```", "", infradoc_playbooks.get(name, lang), flags=re.S) for name in names}
    assert len(pages) > 40
    assert not [(name, one) for name, page in pages.items() for one in doubled(page)]


def test_an_error_that_quotes_another_ends_once() -> None:
    for message in ("No way: it failed..", "No way: it failed. .", "No way: it failed:."):
        assert str(InfradocError(message, "Go.")) == "No way: it failed. Go."
    for message in ("One of list|...", "In ../x and .toml", "So: .venv is there."):
        assert InfradocError(message).message == message
    assert "failed. Set" in app.internal_error(ValueError("it failed."))


WRONG = [
    [],
    ["diagnos"],
    ["diagnose"],
    ["diagnose", "nothing-here"],
    ["diagnose", "ftp://h"],
    ["diagnose", "http://h:1", "--window", "soon"],
    ["diagnose", "http://127.0.0.1:1", "--window", "1s"],
    ["diagnose", "https://127.0.0.1:1", "--window", "1s"],
    ["diagnose", "x", "--format", "pdf"],
    ["record", "http://h:1"],
    ["record", ".", "-o", "x"],
    ["record", "http://h:1", "-o", "x", "--every", "1ms"],
    ["lengths", "nothing-here"],
    ["lengths", "http://127.0.0.1:1"],
    ["lengths", "."],
    ["fit", "no-such-model", "--gpu", "H100"],
    ["fit", "llama-3.1-8b", "--gpu", "abacus"],
    ["fit", "llama-3.1-8b", "--gpu", "H100", "--tp", "3"],
    ["fit", "llama-3.1-8b", "--gpu", "H100", "--gpu-memory-utilization", "2"],
    ["fix", "."],
    ["fix", "nothing-here"],
    ["fix", "http://127.0.0.1:1", "--window", "1s"],
    ["fix", "http://127.0.0.1:1", "--finding", "kv-thrash"],
    ["undo", "."],
    ["undo", "http://127.0.0.1:1"],
    ["undo", "--change", "x"],
    ["bench", "http://127.0.0.1:1"],
    ["bench", "http://127.0.0.1:1", "--class", "a"],
    ["bench", "http://127.0.0.1:1", "--class", "a:closed=x"],
    ["bench", "http://127.0.0.1:1", "--spec", "no.toml"],
    ["bench", "http://u:p@h"],
    ["model"],
    ["rules", "list", "nowhere"],
    ["rules", "list", "--write", "x"],
    ["rules", "test", "--cases", "nowhere"],
    ["playbook", "kv-thrashing"],
    ["diagnose", "x", "--config", "no.toml"],
]


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_messages_for_wrong_usage(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(tmp_path / "state"))
    for name in ("INFRADOC_CONFIG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert app.dispatch(argv) in (1, 2, 30)
    told = "".join(capsys.readouterr())
    assert told.strip() and not doubled(told), told
