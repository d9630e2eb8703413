"""Names that were meant, of knobs and faults."""

from __future__ import annotations

import pytest

from infradoc_engine.faults.all import FAULTS
from infradoc_engine.knobs import KNOBS
from infradoc_engine.near import near


@pytest.mark.parametrize("name", [*KNOBS, *FAULTS])
def test_a_name_with_two_swapped_letters_is_found_again(name: str) -> None:
    for at in range(len(name) - 1):
        swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
        assert near(swapped, KNOBS if name in KNOBS else FAULTS) == name


@pytest.mark.parametrize("word", ["zzz", "", "temperature", "the moon"])
def test_a_word_that_means_no_knob_is_offered_none(word: str) -> None:
    assert near(word, KNOBS) == ""
