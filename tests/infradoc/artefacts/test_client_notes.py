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
        "# client: content=[image_url, text], the text is the same 500-token layout prompt for every page",
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


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("      max_parallel_requests: 4", 4),
        ("    limit_conn perip 8;", 8),
        ("    server 10.0.0.4:8000 max_conns=16;", 16),
        ("    server vllm 10.0.0.4:8000 check maxconn 12", 12),
        ("    http2MaxRequests: 32", 32),
        ("connector = aiohttp.TCPConnector(limit=20)", 20),
        ("client = httpx.AsyncClient(limits=httpx.Limits(max_connections=10))", 10),
    ],
)
def test_what_lets_few_requests_through(read_kind, line, passes):
    assert read_kind(ClientNotesKind(), line)[1]["client.gate"] == passes


@pytest.mark.parametrize(
    ("line", "count"), [("# 16 parallel chats, no max_tokens", 16), ("# load: 40 requests at once", 40)]
)
def test_how_many_a_comment_says_are_in_flight(read_kind, line, count):
    assert read_kind(ClientNotesKind(), line)[1]["client.concurrency"] == count
