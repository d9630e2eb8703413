"""Parsed YAML that is kept: current or not used, and never in the way."""

from __future__ import annotations

import os
import sys

import pytest

from infradoc_rules.catalog import default_dir, load_catalog, rule_files
from infradoc_rules.schema import RuleError, load_rule, load_sound_rule
from infradoc_rules.yaml_cache import YamlCache


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    return path


def test_kept_from_process_to_process(tmp_path, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    first = YamlCache(tmp_path / "c" / "x")
    assert first.get(document) == (False, None)
    first.put(document, {"a": [1, None, 2.5, {3: "b"}]})
    first.save()
    assert YamlCache(tmp_path / "c" / "x").get(document) == (True, {"a": [1, None, 2.5, {3: "b"}]})
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["x"]


def test_a_changed_file_is_read_anew(tmp_path, document):
    cache = YamlCache(tmp_path / "x")
    cache.put(document, 1)
    os.utime(document, ns=(1, 1))
    assert cache.get(document) == (False, None)


def test_each_caller_gets_a_document_of_its_own(tmp_path, document):
    cache = YamlCache(tmp_path / "x")
    cache.put(document, {"a": []})
    cache.get(document)[1]["a"].append(1)
    assert cache.get(document) == (True, {"a": []})


@pytest.mark.parametrize("data", [b"", b"junk", b"\xe3\x01"])
def test_a_damaged_file_counts_as_none(data, tmp_path, document):
    (tmp_path / "x").write_bytes(data)
    assert YamlCache(tmp_path / "x").get(document) == (False, None)


def test_nothing_is_written_where_python_writes_nothing(tmp_path, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    cache = YamlCache(tmp_path / "x")
    cache.put(document, 1)
    cache.save()
    assert not (tmp_path / "x").exists()


def test_quickly_loaded_rules_are_the_same():
    rules = [load_rule(path)[0] for path in rule_files(default_dir())]
    assert list(load_catalog().rules) == rules


def test_an_unsound_rule_is_named_with_its_line(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("schema: 1\nid: x\nseverety: warning\n")
    with pytest.raises(RuleError, match="line 3"):
        load_sound_rule(path)
    path.write_text("a: [\n")
    with pytest.raises(RuleError, match="not readable as YAML"):
        load_sound_rule(path)
