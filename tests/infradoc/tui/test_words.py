"""Both languages say the same things, and every word is on some screen."""

from __future__ import annotations

import re
from pathlib import Path

import infradoc.tui
from infradoc.tui.keys import help_keys
from infradoc.tui.words import words


def test_both_languages_have_the_same_words_with_the_same_places() -> None:
    english, chinese = words("en"), words("zh")
    assert english.keys() == chinese.keys()
    for name, text in english.items():
        assert sorted(re.findall(r"{\w+[^}]*}", text)) == sorted(re.findall(r"{\w+[^}]*}", chinese[name])), name


def test_every_word_is_used() -> None:
    (folder,) = infradoc.tui.__path__
    code = "".join(path.read_text() for path in Path(folder).rglob("*.py") if path.name != "words.py")
    assert [name for name in words("en") if f'"{name}"' not in code and f"'{name}'" not in code] == []


def test_the_help_has_each_key_once_in_both_languages() -> None:
    english, chinese = help_keys("en"), help_keys("zh")
    assert [key for key, _ in english] == [key for key, _ in chinese] and len(set(english)) == len(english)
    assert all(re.search(r"[\u4e00-\u9fff]", what) for _, what in chinese)
