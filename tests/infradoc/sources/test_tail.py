"""New lines of a growing file, each once."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from infradoc.sources.tail import FileTail


@given(st.lists(st.binary(max_size=30), max_size=12))
def test_lines_do_not_depend_on_where_the_writes_were_cut(chunks: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_bytes(b"")
        tail, found = FileTail(path), []
        for chunk in chunks:
            with path.open("ab") as handle:
                handle.write(chunk)
            found += tail.lines()
    assert found == b"".join(chunks).split(b"\n")[:-1]


def test_rotation_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a\nb\n")
    tail = FileTail(path)
    assert tail.lines() == [b"a", b"b"]
    path.write_bytes(b"c\n")
    assert tail.lines() == [b"c"]
    path.rename(tmp_path / "old")
    path.write_bytes(b"dddd\ne\n")
    assert tail.lines() == [b"dddd", b"e"]


def test_middle_of_a_long_file_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"".join(b"line %05d\n" % number for number in range(10_000)))
    tail = FileTail(path, head_bytes=110, tail_bytes=110)
    lines = tail.lines()
    assert lines[0] == b"line 00000" and lines[-1] == b"line 09999" and len(lines) < 25
    assert all(len(line) == 10 for line in lines)
    with path.open("ab") as handle:
        handle.write(b"more\n")
    assert tail.lines() == [b"more"]
