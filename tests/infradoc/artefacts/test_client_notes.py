import pytest

from infradoc.artefacts.kinds.client_notes import ClientNotesKind


@pytest.mark.parametrize(
    "line",
    [
        "# client: for row in rows: requests.post(...)",
        "# load: script loops over 20000 rows and waits for each answer",
        "We send the prompts one at a time from a notebook.",
        "# benchmark is single-threaded",
    ],
)
def test_one_after_another(read_kind, line):
    assert read_kind(ClientNotesKind(), line)[1]["client.sequential"] is True


@pytest.mark.parametrize(
    "line",
    [
        "Every request carries the same 6,000 token tool schema.",
        "Each call begins with the same long system prompt of the agent.",
        "# agents, the same 7k token system prompt in front",
    ],
)
def test_shared_beginnings_in_prose(read_kind, line):
    assert read_kind(ClientNotesKind(), line)[1]["client.shared_prefix"] is True


@pytest.mark.parametrize(
    "line",
    [
        "INFO 10-01 12:00:00 [core.py:1] Requests are processed one at a time",
        "Received request cmpl-1: prompt: 'the same prefix'",
        "All blocks are free again",
    ],
)
def test_log_lines_are_no_notes(line):
    assert ClientNotesKind().spans([line]) == []
