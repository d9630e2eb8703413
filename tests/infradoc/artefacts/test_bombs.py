"""What unpacks to far more than it weighs, or is thousands of lines of nothing, is bounded as a whole and said."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.artefacts import dense
from infradoc.artefacts.decode import LineReader
from infradoc.artefacts.dense import LONG, LONGEST_RUN, Runs, Thinned
from infradoc.artefacts.gather import HEAD_LINES, _head, gather
from infradoc.artefacts.open import Opening, Text
from infradoc.artefacts.unpack import MAX_RATIO

MIB = 1 << 20
LINE = 'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'
DEAD = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("infradoc.artefacts.unpack.FREE_BYTES", 2 * MIB)


def _zip(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def _tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _read(path):
    """(bytes, lines) that all texts gave, and the notes."""
    opening = Opening(path.name)
    size = lines = 0
    for text in opening.texts(path):
        lines += sum(map(len, text.reader.batches()))
        size += text.reader.bytes_read
    return size, lines, opening.notes


def _noise(megabytes):
    rng = random.Random(7)
    return "".join(f"{rng.random()} {rng.random()} {rng.random()}\n" for _ in range(megabytes * 17_000)).encode()


def test_an_archive_has_one_budget_not_one_for_each_member(tmp_path):
    path = tmp_path / "b.zip"
    path.write_bytes(_zip([(f"{number}.log", b"\n" * (4 * MIB)) for number in range(30)]))
    size, lines, notes = _read(path)
    assert size <= MAX_RATIO * path.stat().st_size + 4 * MIB  # 120 MiB are packed in it
    assert lines <= dense.ALL_RUNS + 30 * LONG
    assert notes.counts["bomb"] > 20 and notes.gaps


def test_a_folder_has_one_budget(write):
    folder = write(**{f"{number}__gz": gzip.compress(b"ab\n" * (3 * MIB)) for number in range(8)})
    packed = sum(file.stat().st_size for file in folder.iterdir())
    size, _, notes = _read(folder)
    assert size <= MAX_RATIO * packed + 4 * MIB and notes.counts["bomb"] == 8


def test_two_ratios_do_not_multiply(tmp_path):
    """A packed file in an archive: each unpacks a few hundred fold, both together more than any log does."""
    inner = gzip.compress(b"ab\n" * (8 * MIB))
    path = tmp_path / "b.zip"
    path.write_bytes(_zip([("x.gz", inner)]))
    assert len(inner) > 20 * path.stat().st_size
    assert _read(path)[0] <= MAX_RATIO * path.stat().st_size + 4 * MIB


def test_a_bomb_leaves_the_logs_beside_it_to_read(tmp_path):
    path = tmp_path / "case.zip"
    logs = [("z.log", LINE * 999 + DEAD), ("zz.txt", _noise(1))]
    path.write_bytes(_zip([("a.log", b"\n" * (24 * MIB)), *logs]))
    found = gather(path)
    assert "cuda_oom" in {event.name for event in found.events}
    assert sum(event.repeat for event in found.events if event.name == "http_access") == 999
    assert found.notes.counts["bomb"] == 1


def test_the_whole_of_a_reading_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("infradoc.artefacts.unpack.MAX_UNPACKED", 3 * MIB)
    path = tmp_path / "case.zip"
    path.write_bytes(_zip([(f"{number}.log", _noise(1)) for number in range(8)]))
    size, _, notes = _read(path)
    assert size <= 3 * MIB
    assert notes.counts["budget"] == 5 and notes.counts["empty"] == 0 and notes.gaps


def test_files_of_a_packed_tar_are_counted_once(tmp_path, monkeypatch):
    monkeypatch.setattr("infradoc.artefacts.unpack.MAX_UNPACKED", 7 * MIB)
    path = tmp_path / "case.tgz"
    path.write_bytes(gzip.compress(_tar([(f"{number}.log", _noise(1)) for number in range(5)])))
    size, _, notes = _read(path)
    assert size > 4 * MIB and not notes.counts


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"\r\n", b"ab\r\n", b"  \n"])
def test_long_runs_of_next_to_nothing_are_cut_and_counted(line, tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(LINE.encode() + line * MIB + DEAD.encode())
    _, lines, notes = _read(path)
    assert lines == LONGEST_RUN + 2
    (note,) = notes.kept
    assert note.kind == "short" and note.values["count"] == str(MIB - LONGEST_RUN)
    assert {event.name for event in gather(path).events} >= {"http_access", "cuda_oom"}


def test_runs_of_all_texts_together_are_bounded(write, monkeypatch):
    folder = write(**{f"{number}__log": b"x\n" * LONGEST_RUN for number in range(20)})
    size, lines, _ = _read(folder)
    assert size == 20 * 2 * LONGEST_RUN and lines <= dense.ALL_RUNS + 20 * LONG


def test_the_head_holds_so_many_lines(tmp_path):
    data = b"abcdef\n" * (4 * HEAD_LINES)
    head, rest, _, _ = _head(Text("x", "x", LineReader(io.BytesIO(data[100:]), data[:100])))
    assert len(head) <= HEAD_LINES + MIB // 7
    assert len(head) + sum(map(len, rest)) == 4 * HEAD_LINES


def test_of_millions_of_short_lines_the_first_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dense, "DENSE_LINES", 300_000)
    path = tmp_path / "x.log"
    path.write_bytes(LINE.encode() + b"abcdef\n" * MIB + LINE.encode() * 40_000 + DEAD.encode())
    _, lines, notes = _read(path)
    (note,) = notes.kept
    assert note.kind == "dense" and notes.gaps
    assert lines < 400_000 and lines + int(note.values["count"]) == MIB + 40_002
    found = gather(path)
    assert "cuda_oom" in {event.name for event in found.events}
    assert sum(event.repeat for event in found.events if event.name == "http_access") > 30_000


def test_lines_of_usual_length_are_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dense, "DENSE_LINES", 0)
    monkeypatch.setattr(dense, "ALL_RUNS", 0)
    path = tmp_path / "x.log"
    path.write_bytes((LINE + "\n" + "exit: 0\n").encode() * 20_000)
    assert _read(path)[1] == 60_000 and not _read(path)[2].counts


def test_a_short_column_is_left_alone(tmp_path):
    """A recorder writes one number a line for hours."""
    path = tmp_path / "util.txt"
    path.write_text("97\n" * 3_600)
    assert _read(path)[1] == 3_600 and not _read(path)[2].counts


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 90)), max_size=12),
    st.lists(st.integers(1, 60), max_size=12),
)
def test_batches_do_not_matter(parts, cuts):
    """However a text is cut into batches, the same is kept, the long lines all are, and what is not is counted."""
    lines = [("z" * width) for width, count in parts for _ in range(count)]
    runs = Runs(90)
    pieces = Thinned(runs, long=12, longest=40)
    out, at = [], 0
    for cut in [*cuts, len(lines)]:
        out += pieces.lines(lines[at : at + cut])
        at += cut
    assert out == Thinned(Runs(90), long=12, longest=40).lines(lines)
    assert len(out) + pieces.cut == len(lines) and runs.cut == pieces.cut
    assert [line for line in out if len(line) > dense.SHORT] == [line for line in lines if len(line) > dense.SHORT]
