"""Line numbers of keys, and refusal of what is no plain YAML."""

from __future__ import annotations

import pytest

from infradoc_rules.yaml_file import YamlError, load_marked


def test_lines_of_keys_and_items(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n")
    marked = load_marked(path)
    assert marked.data == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert [marked.line(where) for where in [("a",), ("b", 1), ("b", 1, "d"), ("b", 9), ("z",)]] == [1, 4, 5, 2, 1]


def test_a_self_reference_is_refused(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: &x {b: *x}\n")
    with pytest.raises(YamlError, match="refers to itself"):
        load_marked(path)
