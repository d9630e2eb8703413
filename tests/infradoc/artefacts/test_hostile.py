"""Lines that want to be slow: none takes more than a moment in any step. The suite's own time limit is the judge."""

from __future__ import annotations

import pytest

from infradoc.artefacts.gather import gather
from infradoc.artefacts.kinds import KINDS
from infradoc.artefacts.split import split
from infradoc.sources.secrets import without_secrets

SIZE = 100_000
PIECES = [
    "(", "[", " ", "A=1 ", "/", "a", '"', "| ", "1", "1.", "{", "1,", "python ", "-", "a:", "a=b,", "api_key=[",
    "SECRET_", "<pre", "&", "> ", "GPU0 ", "1MiB / ", "\\", "\x1b[", "\r", 'File "', "0x", "eyJ.",
    "Traceback (most recent call last):", 'a="x" ', "sudo -a ", 'docker run "', "`vllm serve ", "1.0c 1W 1Mhz ", "C:\\",
]  # fmt: skip


LAUNCHES = ['docker run vllm/vllm-openai bash -c "', "llm = LLM(model='m',", "image: vllm/vllm-openai", "A=1 \\"]


@pytest.mark.parametrize("piece", PIECES)
def test_one_long_line(piece, write):
    line = (piece * (SIZE // len(piece) + 1))[:SIZE]
    by_name = {kind.name: kind for kind in KINDS}
    for segment in split("x", [line, line]):
        by_name[segment.kind].read(segment)
    without_secrets(line)
    gather(write(paste=f"{line}\nhello\n{line}\n"))


@pytest.mark.parametrize(
    "line", ["{", "[", '{"a":', "k: v", "x \\", "| a | b |", "  - a: b", "1 2 3", "a,b", "# HELP", *LAUNCHES]
)
def test_many_short_lines(line):
    split("x", [line] * 20_000)
