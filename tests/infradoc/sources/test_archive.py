"""Recording files from folders and archives: hostile archives touch nothing, damaged ones say so in a sentence."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from infradoc.sources import archive
from infradoc.sources.archive import RecordingError, RecordingFiles


def add(tar: tarfile.TarFile, name: str, data: bytes, **attributes: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in attributes.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(data))


def test_folder_and_archive_give_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    folder.mkdir()
    (folder / "scrapes.jsonl.gz").write_bytes(gzip.compress(b'{"t": 1}\n{"t": 2}\n'))
    (folder / "server.log").write_bytes(b"line\n")
    (folder / "label.yaml").write_bytes(b"expect: [x]\n")
    packed = tmp_path / "rec.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, arcname="rec")
    for path in (folder, packed):
        files = RecordingFiles(path)
        assert files.names == {"scrapes.jsonl.gz", "server.log"}
        assert list(files.lines("scrapes.jsonl.gz")) == [b'{"t": 1}\n', b'{"t": 2}\n']
        assert files.logs == ["server.log"]


def test_hostile_archive_writes_nothing_and_follows_nothing(tmp_path: Path) -> None:
    packed = tmp_path / "evil.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        add(tar, "../../etc/server.log", b"first\n")
        add(tar, "/abs/launch.txt", b"vllm serve m\n")
        add(tar, "client.jsonl", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add(tar, "meta.json", b"", type=tarfile.LNKTYPE, linkname="../../etc/server.log")
        add(tar, "host.jsonl.gz", b"", type=tarfile.CHRTYPE)
        add(tar, "x/server.log", b"second\n")
        add(tar, "evil.sh", b"boom")
    before = sorted(tmp_path.rglob("*"))
    files = RecordingFiles(packed)
    assert files.names == {"server.log", "launch.txt"}
    assert list(files.lines("server.log")) == [b"first\n"]
    assert sorted(tmp_path.rglob("*")) == before


def test_unpacked_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1000)
    packed = tmp_path / "bomb.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        add(tar, "server.log", b"0" * 2000)
    with pytest.raises(RecordingError, match="unpacks to more"):
        RecordingFiles(packed)
    folder = tmp_path / "bomb"
    folder.mkdir()
    (folder / "scrapes.jsonl.gz").write_bytes(gzip.compress(b"0\n" * 5000))
    with pytest.raises(RecordingError, match=r"scrapes\.jsonl\.gz .* is larger"):
        list(RecordingFiles(folder).lines("scrapes.jsonl.gz"))


def test_gzip_cut_off_gives_what_was_written(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f'{{"t": {i}}}\n' for i in range(5000)).encode())
    (tmp_path / "scrapes.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    lines = list(RecordingFiles(tmp_path).lines("scrapes.jsonl.gz"))
    assert 100 < len(lines) < 5000


@pytest.mark.parametrize("data", [b"not gzip at all\n", b"\x1f\x8b" + b"\x00" * 20])
def test_damaged_gzip(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "scrapes.jsonl.gz").write_bytes(data)
    with pytest.raises(RecordingError, match="damaged"):
        list(RecordingFiles(tmp_path).lines("scrapes.jsonl.gz"))


def test_says_what_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="There is no"):
        RecordingFiles(tmp_path / "nothing")
    with pytest.raises(RecordingError, match="none of the files"):
        RecordingFiles(tmp_path)
    other = tmp_path / "picture.png"
    other.write_bytes(b"x")
    with pytest.raises(RecordingError, match="is no recording"):
        RecordingFiles(other)
    fake = tmp_path / "fake.tar.gz"
    fake.write_bytes(b"this is text")
    with pytest.raises(RecordingError, match="no readable archive") as caught:
        RecordingFiles(fake)
    assert "\n" not in str(caught.value)
    empty = tmp_path / "empty.tar.gz"
    with tarfile.open(empty, "w:gz"):
        pass
    with pytest.raises(RecordingError, match="none of the files"):
        RecordingFiles(empty)
