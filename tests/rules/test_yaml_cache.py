"""Parsed YAML that is kept: current or not used, and never in the way."""

from __future__ import annotations

import marshal
import os
import sys

import pytest

from infradoc_rules import rule_file
from infradoc_rules.catalog import default_dir, load_catalog, rule_files
from infradoc_rules.rule_file import _FORMAT, RuleError, load_rule, load_sound_rule, packed_part, unpacked
from infradoc_rules.yaml_cache import YamlCache


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    return path


@pytest.fixture
def cache(tmp_path):
    """Makes caches of this folder: the file beside the program is x, the user's is own/x."""
    return lambda: YamlCache(tmp_path / "x", lambda: tmp_path / "own" / "x")


def test_kept_from_process_to_process(tmp_path, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    first = YamlCache(tmp_path / "c" / "x", lambda: tmp_path / "own")
    assert first.get(document) == (False, None)
    first.put(document, {"a": [1, None, 2.5, {3: "b"}]})
    first.save()
    assert YamlCache(tmp_path / "c" / "x", lambda: tmp_path / "own").get(document) == (
        True,
        {"a": [1, None, 2.5, {3: "b"}]},
    )
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["x"]


def test_a_changed_file_is_read_anew(cache, document):
    held = cache()
    held.put(document, 1)
    os.utime(document, ns=(1, 1))
    assert held.get(document) == (False, None)


def test_what_a_program_made_of_a_file_is_made_anew_when_the_program_changes(tmp_path, cache, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    program = tmp_path / "program.py"
    program.write_text("1")
    held = cache()
    held.put(document, 1, [program])
    held.save()
    assert cache().get(document, [program]) == (True, 1) and cache().get(document) == (False, None)
    program.write_text("22")
    assert cache().get(document, [program]) == (False, None)


def test_each_caller_gets_a_document_of_its_own(cache, document):
    held = cache()
    held.put(document, {"a": []})
    held.get(document)[1]["a"].append(1)
    assert held.get(document) == (True, {"a": []})


@pytest.mark.parametrize("data", [b"", b"junk", b"\xe3\x01"])
def test_a_damaged_file_counts_as_none(data, tmp_path, cache, document):
    (tmp_path / "x").write_bytes(data)
    assert cache().get(document) == (False, None)


def test_where_the_program_is_anothers_the_user_has_a_cache(tmp_path, cache, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    beside = YamlCache(document / "no folder" / "x", lambda: tmp_path / "own" / "x")
    beside.put(document, 1)
    beside.save()
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["x"]
    assert (tmp_path / "own").stat().st_mode & 0o077 == 0
    assert cache().get(document) == (True, 1)


def test_an_old_cache_beside_the_program_does_not_hide_the_users(tmp_path, cache, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    first = cache()
    first.put(document, "old")
    first.save()
    document.write_text("a: 22\n")
    own = YamlCache(tmp_path / "own" / "x", lambda: tmp_path / "none")
    own.put(document, "new")
    own.save()
    assert cache().get(document) == (True, "new")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner here")
def test_a_file_that_others_may_write_is_not_read(tmp_path, cache, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    held = cache()
    held.put(document, 1)
    held.save()
    assert cache().get(document) == (True, 1)
    (tmp_path / "x").chmod(0o666)
    assert cache().get(document) == (False, None)
    (tmp_path / "x").chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda handle: _OwnedBy(4712, real(handle)))
    assert cache().get(document) == (False, None)


class _OwnedBy:
    def __init__(self, user, seen):
        self.st_uid, self.st_mode = user, seen.st_mode


def test_nothing_is_written_where_python_writes_nothing(tmp_path, cache, document, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    held = cache()
    held.put(document, 1)
    held.save()
    assert not (tmp_path / "x").exists() and not (tmp_path / "own").exists()


def test_quickly_loaded_rules_are_the_same():
    rules = [load_rule(path)[0] for path in rule_files(default_dir())]
    assert list(load_catalog().rules) == rules
    assert [unpacked(marshal.loads(marshal.dumps(packed_part(rule)))) for rule in rules] == rules


@pytest.mark.parametrize("packed", [1, ("Rule", {}), ("Rule", {"id": 1, "x": 2}), ("os", {}), ("Text",), ("Text", 1)])
def test_what_is_no_rule_in_the_cache_is_read_from_its_file(packed, cache, monkeypatch):
    path = rule_files(default_dir())[0]
    held = cache()
    held.put(path, packed, _FORMAT)
    monkeypatch.setattr(rule_file, "CACHE", held)
    assert load_sound_rule(path) == load_rule(path)[0]
    assert held.get(path, _FORMAT)[1] == packed_part(load_rule(path)[0])


def test_an_unsound_rule_is_named_with_its_line(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("schema: 1\nid: x\nseverety: warning\n")
    with pytest.raises(RuleError, match="line 3"):
        load_sound_rule(path)
    path.write_text("a: [\n")
    with pytest.raises(RuleError, match="not readable as YAML"):
        load_sound_rule(path)
