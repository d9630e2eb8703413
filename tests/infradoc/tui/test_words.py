"""Both languages say the same things, and every word is on some screen."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import infradoc.tui
from infradoc.fleet.model import MarkKind
from infradoc.tui.keys import help_keys
from infradoc.tui.panels.blocks import LETTERS as BLOCKS
from infradoc.tui.panels.ledger import LETTERS
from infradoc.tui.words import named, words
from infradoc_rules.model import Risk, Severity


def test_both_languages_have_the_same_words_with_the_same_places() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        assert sorted(re.findall(r"{\w+[^}]*}", text)) == sorted(re.findall(r"{\w+[^}]*}", chinese[name])), name


def test_every_word_is_used() -> None:
    (folder,) = infradoc.tui.__path__
    marks = {f"m_{kind}" for kind in get_args(MarkKind)}  # made of the kind
    marks |= {name for name in words("en") if name.split("_")[0] in ("s", "st", "bl", "rq", "risk")}  # see `named`
    code = "".join(path.read_text() for path in Path(folder).rglob("*.py") if path.name != "words.py")
    assert marks <= set(words("en"))
    assert [
        name for name in words("en") if name not in marks and f'"{name}"' not in code and f"'{name}'" not in code
    ] == []


def test_the_help_has_each_key_once_in_both_languages() -> None:
    english, chinese = help_keys("en"), help_keys("zh")
    assert [key for key, _ in english] == [key for key, _ in chinese] and len(set(english)) == len(english)
    assert all(re.search(r"[\u4e00-\u9fff]", what) for _, what in chinese)


def english(text: str) -> list[str]:
    """Words that are no name, unit or key."""
    kept = re.sub(r"{[^}]*}", "", text)
    known = {"infradoc", "TTFT", "ITL", "KV", "GPU", "CPU", "SVG", "CSV", "Ctrl", "Esc", "token", "tokens", "Shift"}
    return [word for word in re.findall(r"[A-Za-z]{2,}", kept) if word not in known]


def test_chinese_words_are_chinese() -> None:
    """Chinese holds no English beside names, units and keys, and no sentence is the same in both."""
    left = {name: text for name, text in words("zh").items() if english(text)}
    assert left == {}
    same = [name for name, text in words("en").items() if text == words("zh")[name] and english(text)]
    assert same == []


def test_no_screen_says_a_sentence_of_its_own() -> None:
    """Each text that a screen shows comes from the words: none is written where it is shown."""
    (folder,) = infradoc.tui.__path__
    spoken = {"Text", "append", "update", "tell", "notify", "say", "add", "heading", "Static", "Option"}
    found = []
    for path in Path(folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in spoken:
                texts = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                found += [(path.name, one.value) for one in texts if re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", one.value)]
    styles = {"bold red", "bold underline", "dim italic", "bold green", "not bold"}
    assert [(name, text) for name, text in found if not any(text.startswith(style) for style in styles)] == []


def test_what_a_server_or_a_rule_calls_something_has_a_word() -> None:
    say = words("zh")
    for prefix, names in (
        ("st", LETTERS),
        ("bl", BLOCKS),
        ("s", get_args(Severity)),
        ("risk", get_args(Risk)),
        ("rq", ("running", "waiting", "preempted", "finished")),
    ):
        assert all(re.search(r"[\u4e00-\u9fff]", named(say, prefix, name)) for name in names), prefix
    assert named(say, "st", "unheard of") == "unheard of"
