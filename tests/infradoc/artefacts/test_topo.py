"""The matrix of `nvidia-smi topo -m`: links, NVLink, network cards; wherever it stands in a text."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.topo import TopologyKind
from infradoc.artefacts.split import split

KIND = TopologyKind()
MATRIX = [
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
    "GPU0\t X \tNV18\tPIX\t0-51\t0\tN/A",
    "GPU1\tNV18\t X \tSYS\t52-103\t1\tN/A",
    "NIC0\tPIX\tSYS\t X ",
    "",
    "Legend:",
    "",
    "  X    = Self",
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
    "",
    "NIC Legend:",
    "",
    "  NIC0: mlx5_0",
]


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "topo.txt")


def test_links_and_facts(read):
    found = read(MATRIX)
    links = {(e.fields["a"], e.fields["b"]): e.fields["link"] for e in found.events}
    assert links["GPU0", "GPU1"] == "NV18"
    assert links["NIC0", "GPU1"] == "SYS"
    assert ("GPU0", "GPU0") not in links
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts == {"topo.gpus": 2, "topo.nics": 1, "topo.nvlink": True, "topo.links": "NV18"}
    assert found.unparsed == 0


def test_evidence_names_the_line(read):
    assert read(MATRIX).events[0].source == "topo.txt:2"


@pytest.mark.parametrize("link", ["SYS", "PHB", "PXB", "PIX", "NODE"])
def test_pcie_is_no_nvlink(link, read):
    found = read(
        ["        GPU0    GPU1    CPU Affinity", f"GPU0     X      {link}     0-15", f"GPU1    {link}      X      0-15"]
    )
    assert {f.name: f.value for f in found.facts}["topo.nvlink"] is False


def test_it_is_found_between_other_lines():
    text = ["$ nvidia-smi topo -m", *MATRIX, "INFO 01-01 00:00:00 server started", "GPU 0: NVIDIA H100"]
    assert KIND.spans(text) == [(1, 1 + len(MATRIX))]


@pytest.mark.parametrize("line", ["GPU0 is hot", "GPU0", "", "X = Self", "NV18 links are up", "GPU count GPU0 GPU1"])
def test_prose_is_no_matrix(line):
    assert KIND.spans([line]) == []
    assert all(part.kind != KIND.name for part in split("x", [line]))


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_text_is_survived(read, lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)
    read(lines)
