"""Mails as they are sent, and what pages and shells put between lines."""

from __future__ import annotations

import quopri

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.documents import breaks_off, is_flat
from infradoc.artefacts.mailed import decoded, flowed
from infradoc.artefacts.paged import unnumbered, unreported
from infradoc.artefacts.text import clean

COMMAND = "vllm serve org/model --tensor-parallel-size=4 --max-model-len=9000 --gpu-memory-utilization=0.9 --port=8000"


def test_quoted_printable_is_decoded():
    assert decoded(quopri.encodestring(f"{COMMAND}\nGrüße\n".encode()).decode().split("\n")) == [COMMAND, "Grüße", ""]


@pytest.mark.parametrize(
    "lines",
    [[COMMAND], ["batch_size=16", "max_num_seqs=256"], ["a=20", "b=3D", "c=x"], ["x" * 76 + "="], []],
)
def test_other_texts_with_equals_signs_are_not(lines):
    assert decoded(lines) is None


def test_flowed_lines_are_whole_again():
    mail = [" - name: vllm", "vllm serve org/model --tensor-parallel-size=4 --max-model-len=9000 ", "--port=8000"]
    assert flowed(mail) == [
        "- name: vllm",
        "vllm serve org/model --tensor-parallel-size=4 --max-model-len=9000 --port=8000",
    ]
    assert flowed(["a line ", "another one", "and a third"]) is None


def test_numbers_between_lines_are_taken_out():
    assert unnumbered(["1", "first", "2", "", "3", "third", "4", "fourth"]) == ["first", "", "third", "fourth"]
    assert unnumbered(["4096", "16", "17", "x", "18"]) is None
    assert unnumbered(["8", "x", "y"]) is None


def test_powershell_s_report_is_taken_out():
    lines = ["docker.exe : first", "At C:\\a.ps1:3 char:1", "+ docker logs x > o", "+ ~~~~"]
    lines += ["    + CategoryInfo          : NotSpecified: (first:String) [], RemoteException"]
    lines += ["    + FullyQualifiedErrorId : NativeCommandError", " ", "second"]
    assert unreported(lines) == ["first", "second"]
    assert unreported(["a", "FullyQualifiedErrorId"]) is None


def test_json_that_breaks_off_is_said_to():
    assert breaks_off(["{", ' "a": 1', ' "b": 2', "}"]) == 3
    assert breaks_off(["{", ' "a": 1,', ' "b": 2', "}"]) is None
    assert breaks_off(["{", ' "a": 1', "}", "{", ' "a": 2', "}"]) is None


def test_yaml_without_its_indentation_is_said_to_be_so():
    pod = ["apiVersion: v1", "kind: Pod", "spec:", "  containers:", "  - name: vllm", "    image: x"]
    assert not is_flat(pod)
    assert is_flat([line.strip() for line in pod])
    assert not is_flat(["kind: c", "expect: x"])


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("vllm serve m –tensor-parallel-size 2", "vllm serve m --tensor-parallel-size 2"),
        ("vllm serve m —port 8000", "vllm serve m --port 8000"),
        ("ranks 0–3 – all of them", "ranks 0-3 - all of them"),
        ("❌ it failed", "it failed"),
        ("dcoker\b\b\b\b\bocker logs llm", "docker logs llm"),
        ("Mem:\x1b[7C251Gi\x1b[3C248Gi", "Mem:       251Gi   248Gi"),
    ],
)
def test_a_line_as_it_was_meant(line, shown):
    assert clean([line]) == [shown]


@given(st.lists(st.text(max_size=90), max_size=30))
def test_no_text_is_too_odd(lines):
    for read in (decoded, flowed, unnumbered, unreported, breaks_off, is_flat):
        read(lines)
    assert len(clean(lines)) == len(lines)
