"""The scorer in one process gives what score.py gives, and says what is wrong with a label."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infradoc.accuracy.score import Label, LabelError, judge, read_label, score, shares
from infradoc.accuracy.table import line, markdown
from infradoc.catalog import load_rules
from infradoc.cli import rules as command
from infradoc.errors import InfradocError

DATA = Path(__file__).parents[2] / "data"


def _action(knob, change):
    return {"knob": knob, "change": change}


def _finding(name, severity="warning", *actions):
    return {"id": name, "severity": severity, "actions": list(actions)}


SICK = Label(
    ("oom-no-kv-blocks",), ("memory-leak",), ("queue-saturation",), {"gpu_memory_utilization": "increase"}, "vllm"
)


@pytest.mark.parametrize(
    ("found", "votes"),
    [
        ([], {"top1": False, "any": False, "forbid": False, "fix": False}),
        ([_finding("oom-no-kv-blocks", "info")], {"top1": False, "any": False, "forbid": False, "fix": False}),
        ([_finding("memory-leak")], {"top1": True, "any": True, "forbid": False, "fix": False}),
        (
            [
                _finding("queue-saturation"),
                _finding("oom-no-kv-blocks", "critical", _action("--gpu-memory-utilization", "increase")),
            ],
            {"top1": False, "any": True, "forbid": True, "fix": True},
        ),
        (
            [
                _finding(
                    "oom-no-kv-blocks",
                    "warning",
                    _action("gpu_memory_utilization", "decrease"),
                    _action("gpu_memory_utilization", "increase"),
                )
            ],
            {"top1": True, "any": True, "forbid": False, "fix": False},
        ),
        (
            [
                _finding(
                    "oom-no-kv-blocks",
                    "warning",
                    _action("a", "set"),
                    _action("b", "set"),
                    _action("gpu_memory_utilization", "increase"),
                )
            ],
            {"top1": True, "any": True, "forbid": False, "fix": False},
        ),
    ],
)
def test_votes(found, votes):
    assert judge(found, SICK)[1] == votes


def test_healthy_cases():
    assert judge([_finding("memory-leak", "info")], Label(("healthy",)))[1] == {"top1": True, "false_alarm": False}
    assert judge([_finding("memory-leak")], Label(("healthy",)))[1] == {"top1": False, "false_alarm": True}


def test_a_flag_that_switches_the_other_way():
    label = Label(("eager-mode-slow",), fix={"enforce_eager": "disable"}, system="sglang")
    assert judge([_finding("eager-mode-slow", "warning", _action("enforce_eager", "disable"))], label)[1]["fix"]
    anything = Label(("eager-mode-slow",), fix={"model_checkpoint": {"set": "x"}})
    assert judge([_finding("eager-mode-slow", "warning", _action("model_checkpoint", "set"))], anything)[1]["fix"]


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    root = tmp_path_factory.mktemp("cases")
    for name in ("a005", "a009", "b011", "b023", "b069", "a054"):
        shutil.copytree(DATA / "cases" / name, root / name)
    return root


def test_the_same_as_score_py(some, tmp_path):
    out = tmp_path / "rows.json"
    infradoc = f"{sys.executable} -P -m infradoc"
    done = subprocess.run(
        [
            sys.executable,
            str(DATA / "cases" / "score.py"),
            "--cases",
            str(some),
            "--infradoc",
            infradoc,
            "--jobs",
            "1",
            "--json",
            str(out),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    theirs = {row["case"]: row for row in json.loads(out.read_text())}
    rows = score(some, load_rules())
    assert done.returncode == 0 and len(rows) == len(theirs) == 6
    for row in rows:
        other = theirs[row.case]
        assert list(row.ids) == other["ids"]
        names = {"false_alarm": "alarm"}
        assert {name: other[names.get(name, name)] for name in row.votes} == dict(row.votes)
    printed = json.loads(done.stdout.splitlines()[-1])
    for name, (value, n) in shares(rows).items():
        assert printed[name] == (None if value is None else round(value, 3)) and printed["n"][name] == n


def test_the_command(some, capsys, tmp_path):
    page = tmp_path / "accuracy.md"
    code = command.run(["test", "--cases", str(some), "--write", str(page)])
    said = capsys.readouterr().out
    rows = score(some, load_rules())
    assert code == (1 if any(row.short for row in rows) else 0)
    assert said.splitlines()[-1] == line(rows)
    assert page.read_text().startswith("# Accuracy") and "| top1 |" in page.read_text()


def test_the_page_lists_what_falls_short(some):
    rows = score(some, load_rules())
    text = markdown(rows, "x")
    assert all(f"- {row.short}" in text for row in rows if row.short)
    assert "| oom-no-kv-blocks |" in text


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("system: vllm\n", "no `expect`"),
        ("expect: [no-such-id]\n", "no finding id"),
        ("expect: [healthy]\nforbid: [nonsense]\n", "'nonsense'"),
        ("expect: [\n", "cannot be read"),
        ("expect: [healthy]\nversion: 2020-13-45\n", "not readable as YAML: month must be"),
        ('expect: [healthy]\nversion: !!int "x"\n', "not readable as YAML"),
    ],
)
def test_labels_that_cannot_be_used(label, words, tmp_path):
    (tmp_path / "label.yaml").write_text(label)
    with pytest.raises(LabelError, match=words):
        read_label(tmp_path / "label.yaml")


@pytest.mark.parametrize("args", [["list", "--cases", "."], ["test", "--write", "x"], ["test", "--cases", "/no/such"]])
def test_wrong_usage(args):
    from infradoc.errors import InfradocError

    with pytest.raises(InfradocError):
        command.run(args)


def test_a_case_that_cannot_be_read_counts_as_wrong(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "label.yaml").write_text("expect: [memory-leak]\nfix: {max_num_seqs: decrease}\n")
    (tmp_path / "one" / "shot.png").write_bytes(b"\x89PNG" + bytes(50))
    row = score(tmp_path, load_rules())[0]
    assert row.votes == {"top1": False, "any": False, "forbid": True, "fix": False} and "image" in (row.error or "")


FIRST = "- {batch: a, date: 2026-01-01, sick: 4, right: 3, forbidden: 0, fixes: 4, fixed: 2, healthy: 0, alarms: 0}\n"


def test_the_page_tells_how_unseen_cases_were_scored(some: Path, tmp_path: Path) -> None:
    (some / "first_runs.yaml").write_text(FIRST + FIRST.replace("batch: a", "batch: b").replace("right: 3", "right: 1"))
    page = tmp_path / "accuracy.md"
    command.run(["test", "--cases", str(some), "--write", str(page)])
    text = page.read_text()
    assert "| a | 2026-01-01 | 3 of 4 (0.75) | 0 of 4 (0.00) | 2 of 4 (0.50) | - |" in text
    assert "| **all** |  | 4 of 8 (0.50) |" in text


@pytest.mark.parametrize(
    "text", ["x: 1\n", "- 1\n", "- {batch: a}\n", FIRST.replace("3", "x"), FIRST.replace("3", "-3"), "["]
)
def test_a_broken_list_of_first_runs_is_named(some: Path, text: str) -> None:
    (some / "first_runs.yaml").write_text(text)
    with pytest.raises(LabelError, match="first_runs"):
        command.run(["test", "--cases", str(some)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("expect: [memory-leak]\nalso_ok: 5\n", "`also_ok` is no list"),
        ("expect: [memory-leak]\nforbid: queue-saturation\n", "`forbid` is no list"),
        ("expect: [memory-leak]\nfix: [a]\n", "`fix` is no mapping"),
        ("expect: [memory-leak]\nfix: {max_num_seqs: }\n", "has no direction"),
        ("expect: [memory-leak]\nfix: {max_num_seqs: [increase]}\n", "has no direction"),
        ("expect: [memory-leak]\nforbidden: [queue-saturation]\n", "Did you mean forbid"),
        ("", "the file is empty"),
        ("expect: [memory-leak]\nfix: {max_num_seq: decrease}\n", "'max_num_seq', which .* Did you mean max_num_seqs"),
        ("expect: [memory-leak]\nfix: {the_moon: increase}\n", "'the_moon', which is no knob that advice moves"),
    ],
)
def test_a_label_that_would_silently_check_nothing_is_refused(text, words, tmp_path):
    (tmp_path / "label.yaml").write_text(text)
    with pytest.raises(LabelError, match=words) as caught:
        read_label(tmp_path / "label.yaml")
    assert str(caught.value).count(str(tmp_path)) == 1


def test_a_knob_that_advice_does_not_know_may_stand_beside_one_that_it_does(tmp_path):
    (tmp_path / "label.yaml").write_text("expect: [memory-leak]\nfix: {the_moon: increase, --max-num-seqs: decrease}\n")
    assert set(read_label(tmp_path / "label.yaml").fix) == {"the_moon", "--max-num-seqs"}


def test_a_label_that_is_a_folder(tmp_path):
    (tmp_path / "label.yaml").mkdir()
    with pytest.raises(LabelError, match="Is a directory"):
        read_label(tmp_path / "label.yaml")


def test_a_table_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(InfradocError, match="There is no folder"):
        command.run(["test", "--cases", str(DATA / "cases"), "--write", str(tmp_path / "no" / "x.md")])


@pytest.mark.parametrize("what", ["list", "test"])
def test_a_folder_without_rules_is_named(what, tmp_path):
    with pytest.raises(InfradocError, match="holds no rule files"):
        command.run([what, str(tmp_path)])
