"""Output of the CUDA samples' test of copies between devices, wherever it stands in a text."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.p2p_test import PeerTestKind
from infradoc.artefacts.split import split

KIND = PeerTestKind()
TEXT = [
    "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]",
    "Device: 0, NVIDIA RTX A6000, pciBusID: 3, pciDeviceID: 0, pciDomainID:0",
    "Device=0 CAN Access Peer Device=1",
    "",
    "***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.",
    "P2P Connectivity Matrix",
    "     D\\D     0     1",
    "     0\t     1     1",
    "     1\t     1     1",
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "   D\\D     0      1 ",
    "     0 673.20  13.15 ",
    "     1  12.99 673.20 ",
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)",
    "   D\\D     0      1 ",
    "     0 673.49   2.60 ",
    "     1   2.12 672.33 ",
    "Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)",
    "   D\\D     0      1 ",
    "     0 677.73  18.01 ",
]


@pytest.fixture(scope="module")
def read(read_whole):
    return partial(read_whole, KIND, "p2p.txt")


def test_medians_of_one_direction_without_the_diagonal(read):
    (event,) = read(TEXT).events
    assert event.fields == {"without_peer": pytest.approx(13.07), "with_peer": pytest.approx(2.36), "unfinished": False}


def test_a_test_that_stands_still(read):
    (event,) = read(TEXT[:15]).events
    assert event.fields["unfinished"] is True and "with_peer" not in event.fields


def test_nothing_is_said_of_the_way_that_was_not_measured(read):
    assert read(TEXT[:13]).events == []


def test_both_directions_count_where_one_alone_is_not_shown(read):
    lines = [line.replace("Unidirectional", "Bidirectional") for line in TEXT[9:17]]
    (event,) = read(lines).events
    assert event.fields["with_peer"] == pytest.approx(2.36)


def test_the_table_is_found_in_a_paste():
    lines = ["it hangs, see:", *TEXT, "step 1 loss 2.0"]
    assert [(s.kind, len(s.lines)) for s in split("paste", lines, (KIND,)) if s.kind == KIND.name] == [
        ("p2p_test", len(TEXT))
    ]


@given(st.lists(st.sampled_from([*TEXT, "     0 a b", "", "text"]), max_size=30))
def test_any_order_of_lines_is_survived(lines):
    for start, end in KIND.spans(lines):
        assert 0 <= start < end <= len(lines)
