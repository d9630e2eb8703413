"""Whatever people hand over is read, or named with what to do about it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.artefacts.gather import gather
from infradoc.artefacts.open import ArtefactError, Opening
from infradoc.artefacts.rotation import group_of, order_key

LINE = 'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'


def _codes(gathered):
    return sum(event.repeat for event in gathered.events if event.name == "http_access")


def _notes(gathered):
    return gathered.notes.sentences()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("server.log", bytes),
        ("server.log.gz", gzip.compress),
        ("server.log.xz", lzma.compress),
        ("server.log.bz2", bz2.compress),
        ("odd-name", gzip.compress),
    ],
)
def test_packed_files(name, pack, tmp_path):
    (tmp_path / name).write_bytes(pack(LINE.encode() * 3))
    seen = gather(tmp_path / name)
    assert _codes(seen) == 3
    assert seen.events[0].source.startswith("server.log:" if name.startswith("server") else "odd-name:")


def _tar(entries, mode="w:gz"):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _zip(entries):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return data.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_archives_leave_out_what_leads_out_of_them(mode, tmp_path):
    entries = [
        ("case/server.log", LINE.encode()),
        ("../../evil.log", LINE.encode()),
        ("/abs.log", LINE.encode()),
        ("l", None),
    ]
    (tmp_path / "case.tar").write_bytes(_tar(entries, mode))
    seen = gather(tmp_path / "case.tar")
    assert _codes(seen) == 1
    said = "\n".join(_notes(seen))
    assert "evil.log leads out of the archive" in said
    assert "/abs.log leads out of the archive" in said and "l is a link" in said


def test_zip_with_a_packed_log_inside(tmp_path):
    (tmp_path / "c.zip").write_bytes(_zip([("a/server.log.gz", gzip.compress(LINE.encode() * 2)), ("b.log", LINE)]))
    assert _codes(gather(tmp_path / "c.zip")) == 3


def test_archives_in_archives_end(tmp_path):
    data = LINE.encode()
    for _ in range(5):
        data = _zip([("x", data)])
    (tmp_path / "deep.zip").write_bytes(data)
    with pytest.raises(ArtefactError, match="archive inside archives"):
        gather(tmp_path / "deep.zip")


def test_a_bomb_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("infradoc.artefacts.unpack.FREE_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a" * 60 + b"\n" + b"\n" * (64 << 20)))
    seen = gather(tmp_path / "bomb.gz")
    assert any("unpacks to far more than it weighs" in note for note in _notes(seen))


def test_a_cut_off_gzip_gives_what_it_holds(tmp_path):
    lines = "".join(f'INFO:     10.0.0.1:{port} - "GET /health HTTP/1.1" 200 OK\n' for port in range(1, 20_000))
    data = gzip.compress(lines.encode())
    (tmp_path / "s.log.gz").write_bytes(data[: len(data) // 2])
    seen = gather(tmp_path / "s.log.gz")
    assert _codes(seen) > 1000 and any("breaks off" in note for note in _notes(seen))


def test_damaged_archives_are_named(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04" + b"junk" * 40)
    with pytest.raises(ArtefactError, match=r"x\.zip cannot be unpacked"):
        gather(tmp_path / "x.zip")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "is an image: text is needed"),
        (b"\xff\xd8\xff\xe0" + bytes(50), "is an image: text is needed"),
        (b"%PDF-1.7 x", "a PDF document"),
        (b"\x7fELF" + bytes(99), "a program"),
        (b"GGUF" + bytes(99), "a GGUF model"),
        (bytes(range(32)) * 40, "binary data"),
        (b"\x00" * 500, "NUL bytes"),
        (b"", "is empty"),
        (b"\n \r\n", "only blank lines"),
        (b"\x28\xb5\x2f\xfd" + bytes(30), "zstd|cannot be unpacked|breaks off"),
    ],
)
def test_what_is_no_text_is_named(data, words, tmp_path):
    (tmp_path / "thing").write_bytes(data)
    with pytest.raises(ArtefactError, match=words):
        gather(tmp_path / "thing")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "utf-32"])
def test_encodings_and_line_ends(encoding, tmp_path):
    text = ("INFO: Application startup complete\r\n" + "# g\u00fcltig \u00e9\r\n" + LINE.replace("\n", "\r\n")) * 2
    (tmp_path / "server.log").write_bytes(text.encode(encoding))
    seen = gather(tmp_path)
    assert [event.name for event in seen.events] == ["engine_ready", "http_access"] * 2
    assert seen.events[1].source == "server.log:3"


def test_lines_that_end_in_a_carriage_return_alone(tmp_path):
    (tmp_path / "server.log").write_text(LINE.replace("\n", "\r") * 3, newline="")
    assert [event.source for event in gather(tmp_path).events] == ["server.log:1", "server.log:2", "server.log:3"]


def test_nul_bytes_and_stray_bytes(tmp_path):
    (tmp_path / "server.log").write_bytes(b"\x00" * 5000 + LINE.encode() + b"\xff\xfe\x80 broken\n" + LINE.encode())
    assert _codes(gather(tmp_path)) == 2


def test_a_line_without_an_end(tmp_path):
    (tmp_path / "server.log").write_bytes(b"x" * 10_000_000 + b"\n" + LINE.encode())
    seen = gather(tmp_path)
    assert seen.events[0].source == "server.log:2"
    assert any("more than a million characters" in note for note in _notes(seen))


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="needs holes in files")
def test_a_sparse_file_of_100_gb(tmp_path):
    path = tmp_path / "server.log"
    with path.open("wb") as handle:
        handle.write(LINE.encode())
        handle.seek(100 << 30)
        handle.write(b"\n" + LINE.encode())
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    assert _codes(gather(path)) == 2


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="needs holes in files")
def test_a_sparse_file_of_zeros_is_not_called_empty(tmp_path):
    path = tmp_path / "server.log"
    with path.open("wb") as handle:
        handle.truncate(100 << 30)
    with pytest.raises(ArtefactError, match="nothing but zero bytes"):
        gather(path)


def test_folders_in_folders_and_what_is_left_out(tmp_path):
    deep = tmp_path.joinpath(*"abcdefghijk")
    deep.mkdir(parents=True)
    (deep / "server.log").write_text(LINE)
    (tmp_path / "a" / "server.log").write_text(LINE)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x").write_text(LINE)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "pipe")
    seen = gather(tmp_path)
    assert _codes(seen) == 1
    said = "\n".join(_notes(seen))
    assert "deeper than" in said and "loop is a link" in said and "pipe is no ordinary file" in said


def test_rotated_logs_are_read_oldest_first(tmp_path):
    names = ["server.log", "server.log.2.gz", "server.log.1", "server.log-20251128", "other.log"]
    assert sorted(names, key=order_key) == [
        "other.log",
        "server.log-20251128",
        "server.log.2.gz",
        "server.log.1",
        "server.log",
    ]
    assert {group_of(name) for name in names} == {"server.log", "other.log"}
    (tmp_path / "server.log").write_text(LINE)
    (tmp_path / "server.log.1").write_text("INFO: Application startup complete\n")
    seen = gather(tmp_path)
    assert [event.name for event in seen.events] == ["engine_ready", "http_access"]
    assert seen.events[1].phase == "ready"  # the phase goes on from part to part


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    assert gather(None).events[0].source == "(stdin):1"


def test_nothing_there(tmp_path):
    with pytest.raises(ArtefactError, match="There is no"):
        gather(tmp_path / "missing")
    with pytest.raises(ArtefactError, match="holds nothing to read"):
        gather(tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_no_bytes_break_it(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(data)
    for text in Opening("x").texts(path):
        for batch in text.reader.batches():
            assert all("\n" not in line for line in batch)


def test_zstd_is_unpacked_or_the_way_is_said(write):
    """Python unpacks zstd from 3.14 on, the zstandard package before; the text says what to do where neither is."""
    # "vllm serve m" in a frame of one raw block: magic, descriptor (single segment), size, block header, bytes.
    body = b"vllm serve m\n"
    data = b"\x28\xb5\x2f\xfd\x20" + bytes([len(body)]) + ((len(body) << 3) | 1).to_bytes(3, "little") + body
    folder = write(log__txt__zst=data, other__txt="x\n")
    found = gather(folder)
    if ("log.txt", "launch") not in found.kinds:
        assert any("install zstandard" in note.text() for note in found.notes.kept)
