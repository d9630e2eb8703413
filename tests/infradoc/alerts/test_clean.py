"""What may leave: one line, no secrets, no prompts, no control characters, nothing without end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.alerts.clean import CUT, clean_finding, clean_text, cut_bytes, masked
from infradoc.alerts.sinks.fit import without_markup
from infradoc.alerts.sinks.slack import escaped


@given(text=st.text(max_size=300), most=st.integers(1, 100))
def test_any_text_becomes_one_printable_line_of_bounded_length(text: str, most: int) -> None:
    line = clean_text(text, most)
    assert line.isprintable() and len(line) <= most


@given(text=st.text(max_size=300), most=st.integers(3, 200))
def test_cuts_lie_between_characters(text: str, most: int) -> None:
    cut = cut_bytes(text, most)
    assert len(cut.encode()) <= most
    assert cut == text or (cut.endswith(CUT) and text.startswith(cut[:-1]))


@given(text=st.text(alphabet="<>&abc", max_size=300), most=st.integers(2, 100))
def test_slack_escapes_are_never_cut_in_two(text: str, most: int) -> None:
    out = escaped(text, most)
    assert len(out) <= most and not set("<>") & set(out)
    whole = out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert text.startswith(whole.removesuffix(CUT))


@pytest.mark.parametrize(
    "text",
    [
        "Received request cmpl-1: prompt: 'tell me of my illness', params: x",
        'body {"messages": [{"role": "user", "content": "my illness"}]}',
        'prompt="my illness"',
        "prompt_token_ids: [1, 2, 3, illness]",
    ],
)
def test_prompts_stay_here(text: str) -> None:
    assert "illness" not in clean_text(text) and "characters]" in clean_text(text)


def test_ordinary_words_stay() -> None:
    text = "prompt tokens: 1,024 a request; token budget 2048; content of the pool: 80 blocks"
    assert clean_text(text) == text


def test_a_finding_with_nothing_in_it_is_one() -> None:
    made = clean_finding({"id": "x"})
    assert made["severity"] == "warning" and made["action"] is None and made["evidence"] == []


def test_the_weightiest_evidence_comes_first() -> None:
    made = clean_finding({"id": "x", "evidence": [{"text": f"e{n}", "weight": n} for n in range(9)]})
    assert [item["text"] for item in made["evidence"]] == ["e8", "e7", "e6", "e5", "e4"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.slack.com/services/T/B/KEY", "https://hooks.slack.com/…"),
        ("https://u:pw@h:8443/x?key=KEY", "https://h:8443/…"),
        ("http://h:9093", "http://h:9093"),
        ("http://h:9093/", "http://h:9093"),
        ("http://h:port/", "(an address that cannot be read)"),
        ("http://h\x1b[2J/", "(an address that cannot be read)"),
        ("http://h\x1b2J/x", "http://h\\x1b2j/…"),
        ("http://[::1]:80/x", "http://[::1]:80/…"),
    ],
)
def test_addresses_are_shown_without_their_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_markup_becomes_twins_that_look_alike() -> None:
    assert without_markup("<@all> [a](b) `c` *d* max_num_seqs") == "＜@all＞ ［a］(b) ｀c｀ ＊d＊ max_num_seqs"
