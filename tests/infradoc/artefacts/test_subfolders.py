"""A pile of incidents, each in a folder of its own, is judged one by one; folders of one incident are not parted."""

from __future__ import annotations

import random
import shutil
import tarfile

import pytest

from infradoc.accuracy.score import case_folders, read_label
from infradoc.artefacts.gather import gather
from infradoc.report.post_mortem import diagnose_artefacts


def _put(cases_dir, root, case, folder):
    shutil.copytree(cases_dir / case, root / folder, ignore=shutil.ignore_patterns("label.yaml"))


def _ids(report):
    return {finding["id"] for finding in report["findings"]}


@pytest.mark.parametrize("seed", range(12), ids=str)
def test_the_finding_of_each_is_told(seed, cases_dir, tmp_path, catalog):
    labels = {folder.name: read_label(folder / "label.yaml") for folder in case_folders(cases_dir)}
    logged = [n for n, label in labels.items() if "healthy" not in label.expect and any((cases_dir / n).glob("*log*"))]
    pair = random.Random(seed).sample(sorted(logged), 2)
    for case in pair:
        _put(cases_dir, tmp_path, case, f"incident-{case}")
    report = diagnose_artefacts(tmp_path, catalog)
    for case in pair:
        assert {*labels[case].expect, *labels[case].also_ok} & _ids(report), (pair, _ids(report))


def test_no_launch_or_version_of_another_folder_reaches_the_advice(cases_dir, tmp_path, catalog):
    for case in ("a003", "a005", "a021"):
        _put(cases_dir, tmp_path, case, case)
    report = diagnose_artefacts(tmp_path, catalog)
    alone = {case: diagnose_artefacts(tmp_path / case, catalog)["findings"] for case in ("a003", "a005", "a021")}
    for case, findings in alone.items():
        for finding in findings:
            told = next(f for f in report["findings"] if f["title"] == f"{finding['title']} ({case})")
            assert told["actions"] == finding["actions"]
    assert report["not_visible"][0].startswith("These are 3 servers")


@pytest.mark.parametrize(
    "names",
    [("node0", "node1"), ("before", "after"), ("run-1", "run-2"), ("10.0.0.1", "10.0.0.2"), ("rank_0", "rank_1")],
    ids="-".join,
)
def test_parts_of_one_incident_stay_together(names, cases_dir, tmp_path):
    for case, name in zip(("a005", "a021"), names, strict=True):
        _put(cases_dir, tmp_path, case, name)
    (tmp_path / names[0] / "nvidia-smi.txt").unlink(missing_ok=True)
    assert [one.name for one in gather(tmp_path).servers] != list(names)


def test_folders_by_kind_of_file_are_one_incident(cases_dir, tmp_path, catalog):
    whole = diagnose_artefacts(cases_dir / "a005", catalog)
    for file in (cases_dir / "a005").iterdir():
        if file.name != "label.yaml":
            (tmp_path / file.stem).mkdir()
            shutil.copy(file, tmp_path / file.stem / file.name)
    assert gather(tmp_path).servers == []
    assert [f["id"] for f in diagnose_artefacts(tmp_path, catalog)["findings"]] == [f["id"] for f in whole["findings"]]


def test_a_copy_in_another_folder_is_no_second_incident(cases_dir, tmp_path):
    for folder in ("bundle", "backup"):
        _put(cases_dir, tmp_path, "a005", folder)
    assert gather(tmp_path).servers == []


def test_an_archive_of_a_pile_is_read_as_one(cases_dir, tmp_path):
    _put(cases_dir, tmp_path / "pile", "a005", "one")
    _put(cases_dir, tmp_path / "pile", "a021", "two")
    with tarfile.open(tmp_path / "pile.tar", "w") as archive:
        archive.add(tmp_path / "pile", "pile")
    assert gather(tmp_path / "pile.tar").events
