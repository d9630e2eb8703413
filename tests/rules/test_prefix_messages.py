"""Messages of two words and a colon behind a stamp are no host and unit."""

import pytest

from infradoc_rules.patterns.prefix import take_off

STAMPS = ["2025-12-02T17:00:03.123456789Z ", "2025-12-02T17:00:03.123Z stderr F ", "Dec 02 17:00:03 ", ""]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(
    "message",
    ["CUDA error: out of memory", "slot launch_slot_: id  0 | task 0 | processing task", "srv  update_slots: x"],
)
def test_the_message_stays_whole(stamp, message):
    assert take_off(stamp + message).message.strip() == message


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-30T12:00:00+0000 gpu01 vllm[123]: CUDA error: out of memory",
        "Nov 30 12:00:00 gpu01 ollama[87551]: CUDA error: out of memory",
    ],
)
def test_a_journal_line_loses_host_and_unit(line):
    assert take_off(line).message.strip() == "CUDA error: out of memory"
