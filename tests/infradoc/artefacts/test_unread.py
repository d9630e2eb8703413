"""What is damaged, hidden in noise or no text costs nothing of what lies beside it, and is never called healthy."""
# ruff: noqa: E501

from __future__ import annotations

import gzip
import io
import random
import sys
import tarfile
import zipfile

import pytest

from infradoc.artefacts import open as opening
from infradoc.artefacts.decode import LineReader
from infradoc.artefacts.gather import gather
from infradoc.artefacts.open import ArtefactError
from infradoc.artefacts.unpack import MAX_RATIO, Bounded, Budget
from infradoc.report.post_mortem import diagnose_artefacts

LINE = 'INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'
HEALTHY = f"""\
(APIServer pid=9) INFO 11-29 20:34:00 [api_server.py:1] vLLM API server version 0.11.0
INFO:     Application startup complete.
(APIServer pid=9) INFO 11-29 20:34:10 [loggers.py:257] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%
{LINE}"""


def _requests(gathered):
    return sum(event.repeat for event in gathered.events if event.name == "http_access")


def _tar(*entries):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _office():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<w:t>CUDA out of memory</w:t>")
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("screen.png", b"\x89PNG\r\n\x1a\n" + bytes(50)),
        ("report.pdf", b"%PDF-1.7 x"),
        ("report.docx", _office()),
        ("old.log.gz", gzip.compress(LINE.encode() * 500)[:-8]),
        ("old.log.gz", b"\x1f\x8b" + bytes(range(1, 90))),
        ("all.tar", _tar(("a.log", LINE.encode() * 99))[:2_000]),
        ("deep.gz", gzip.compress(gzip.compress(gzip.compress(gzip.compress(LINE.encode()))))),
    ],
)
def test_what_stayed_unread_is_not_called_healthy(name, data, write, catalog):
    alone = diagnose_artefacts(write(**{"server.log": HEALTHY}), catalog)
    beside = diagnose_artefacts(write(**{"server.log": HEALTHY, name: data}), catalog)
    assert (alone["status"], beside["status"]) == ("ok", "unknown")
    assert any(name.partition(".")[0] in said for said in beside["not_visible"])


def test_an_office_document_is_no_archive_of_texts(tmp_path):
    (tmp_path / "report").write_bytes(_office())
    with pytest.raises(ArtefactError, match="an Office document: text is needed"):
        gather(tmp_path / "report")


@pytest.mark.parametrize("noise", [300, 3_000])
def test_an_engine_is_known_behind_other_lines(noise, write, catalog, cases_dir):
    log = (cases_dir / "a006" / "server.log").read_text()
    report = diagnose_artefacts(write(**{"server.log": "waiting for the volume\n" * noise + log}), catalog)
    assert [finding["id"] for finding in report["findings"]] == ["oom-kv-cache-too-small-for-max-len"]


def test_an_engine_is_known_behind_lines_that_differ(read):
    other = "".join(f"step {number} of something else\n" for number in range(2_000))
    assert read(log=other + HEALTHY).system == "vllm"


@pytest.mark.parametrize("before", [b"", HEALTHY.encode(), b"waiting\n" * 20_000])
def test_utf16_appended_to_utf8(before, tmp_path):
    (tmp_path / "server.log").write_bytes(before + (HEALTHY * 2).encode("utf-16-le"))
    assert _requests(gather(tmp_path)) == (3 if before.startswith(b"(") else 2)


def test_what_comes_before_a_damage_in_a_short_gzip(write):
    packed = gzip.compress(LINE.encode() * 20_000)
    assert _requests(gather(write(**{"server.log.gz": packed[:-40]}))) > 5_000


def test_a_tar_that_breaks_off_gives_its_files(write):
    whole = _tar(("a.log", LINE.encode() * 10), ("b.log", LINE.encode() * 1_000))
    seen = gather(write(**{"all.tar": whole[:20_000]}))
    assert 10 + 200 < _requests(seen) < 1_000
    assert any("breaks off" in said for said in seen.notes.sentences())


def test_a_packed_tar_that_breaks_off_gives_its_files(write):
    lines = "".join(
        f'INFO:     10.0.0.1:{random.Random(n).random()} - "GET /health HTTP/1.1" 200 OK\n' for n in range(999)
    )
    packed = gzip.compress(_tar(("a.log", LINE.encode() * 10), ("b.log", lines.encode())))
    assert _requests(gather(write(**{"all.tgz": packed[: len(packed) // 2]}))) > 100


def test_a_bomb_is_seen_where_it_begins(monkeypatch):
    monkeypatch.setattr("infradoc.artefacts.unpack.FREE_BYTES", 1 << 20)
    bomb = io.BytesIO(gzip.compress(bytes(32 << 20)))
    size = len(bomb.getvalue())
    bounded = Bounded(gzip.GzipFile(fileobj=bomb), Budget(), bomb.tell)
    while bounded.read():
        pass
    assert bounded.stopped and bounded.given <= (1 << 20) + MAX_RATIO * size


def test_of_too_many_files_the_logs_are_read(write, monkeypatch):
    monkeypatch.setattr(opening, "MAX_FILES", 5)
    files = {f"a{number:03}.dat": "x\n" for number in range(30)}
    seen = gather(write(**files, **{"zz-server.log": HEALTHY}))
    assert _requests(seen) == 1
    assert any("only 5 files were read" in said for said in seen.notes.sentences())


def test_a_stream_that_has_nothing_now_ends():
    class Waiting:
        def read(self, size, /):
            return None

    assert list(LineReader(Waiting(), b"a\nb").batches()) == [["a"], ["b"]]


def test_a_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ArtefactError, match="Standard input is closed"):
        gather(None)


def test_a_case_without_artefacts_is_named(write):
    with pytest.raises(ArtefactError, match="holds nothing to read"):
        gather(write(**{"label.yaml": "expect: [healthy]\n"}))
