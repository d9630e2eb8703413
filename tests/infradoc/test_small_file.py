"""Secrets and launch commands come from small regular files; anything else is refused at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infradoc.config import Auth
from infradoc.small_file import MAX_BYTES, read_small
from infradoc.sources.credentials import SecretError, admin_token, read_secret, request_headers
from infradoc.sources.launch_source import LaunchSource


@pytest.fixture(params=["pipe without a writer", "endless device", "folder", "too large"])
def unfit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path that must not be read to its end."""
    path = tmp_path / "unfit"
    if request.param == "pipe without a writer":
        os.mkfifo(path)
    elif request.param == "endless device":
        return Path("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    else:
        with path.open("wb") as stream:
            stream.truncate(MAX_BYTES + 1)
    return path


def test_what_fits_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "fits"
    path.write_bytes(b"x" * MAX_BYTES)
    assert len(read_small(path)) == MAX_BYTES


def test_an_unfit_secret_file_is_refused(unfit: Path) -> None:
    with pytest.raises(SecretError, match=r"bearer token file .* cannot be read: (it is|Is a directory)"):
        request_headers(Auth(bearer_file=str(unfit)))


def test_a_secret_file_of_bytes_is_refused_without_showing_them(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"hidden\xff")
    with pytest.raises(SecretError) as caught:
        read_secret("", str(path), "API key")
    assert "no UTF-8 text" in str(caught.value) and "hidden" not in str(caught.value)


def test_an_unfit_launch_file_is_said(unfit: Path) -> None:
    reading = LaunchSource(unfit).read(1.0)
    assert reading.error is not None and "cannot be read" in reading.error and reading.facts == []


def test_an_engine_token_file_that_is_no_text_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFRADOC_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv("INFRADOC_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "engine-1.token").write_bytes(b"\xff\xfe")
    assert admin_token(Auth(), 1) is None
