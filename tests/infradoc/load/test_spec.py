from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.errors import InfradocError
from infradoc.load.spec import ClassSpec, Span, load_spec, parse_class


def test_a_class_flag_is_read() -> None:
    spec = parse_class("chat:closed=4,kind=chat,prompt_tokens=24,max_tokens=12-36,ignore_eos=true,think=0.5")
    assert spec == ClassSpec(
        "chat", "chat", closed=4, think=0.5, prompt_tokens=Span(24, 24), max_tokens=Span(12, 36), ignore_eos=True
    )


def test_a_file_and_flags_mean_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "load.toml"
    toml.write_text(
        "seed = 7\nduration = 20\nwarmup = 0\n[class.docs]\nopen = 2.5\nkind = 'tokenize'\nbytes = 1000\n"
        "[class.chat]\nclosed = 2\nmax_tokens = [3, 9]\n"
    )
    spec = load_spec(toml)
    assert (spec.seed, spec.duration, spec.warmup) == (7, 20, 0)
    assert spec.classes == (
        parse_class("docs:open=2.5,kind=tokenize,bytes=1000"),
        parse_class("chat:closed=2,max_tokens=3-9"),
    )


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("chat", "no name"),
        (":closed=1", "no name"),
        ("chat:closed", "'closed' has no value"),
        ("chat:kind=chat", "either closed=N"),
        ("chat:closed=1,open=2", "either closed=N"),
        ("chat:closed=0", "whole number above 0"),
        ("chat:closed=1.5", "whole number above 0"),
        ("chat:open=nan", "number above 0"),
        ("chat:open=inf", "number above 0"),
        ("chat:closed=10001", "At most 10,000"),
        ("chat:open=1e9", "At most 10,000"),
        ("chat:closed=1,prompt_tokens=24-99999999999", "At most 10,000,000"),
        ("chat:closed=1,kind=tokenize,bytes=99999999999", "At most 1,073,741,824"),
        ("chat:closed=1,kind=chatter", "Kinds are chat, completion, tokenize"),
        ("chat:closed=1,max_tokens=9-3", "range"),
        ("chat:closed=1,max_token=9", "did you mean max_tokens"),
        ("chat:closed=1,stream=maybe", "true or false"),
        ("chat:closed=1,prompt_tokens=8-64,shared_tokens=9", "more than its shortest prompt"),
    ],
)
def test_a_bad_flag_says_what_is_wrong(flag: str, says: str) -> None:
    with pytest.raises(InfradocError) as caught:
        parse_class(flag)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = ", "cannot be read"),
        (f"seed = {'[' * 20_000}", "cannot be read"),
        ("seed = 1", "no request class"),
        ("sed = 1\n[class.a]\nclosed = 1", "did you mean seed"),
        ("class = {a = 3}", "class.a is no table"),
        ("duration = -3\n[class.a]\nclosed = 1", "duration is -3"),
    ],
)
def test_a_bad_file_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "load.toml"
    path.write_text(text)
    with pytest.raises(InfradocError) as caught:
        load_spec(path)
    assert says in str(caught.value)
    assert "load.toml" in str(caught.value)


def test_a_device_in_place_of_a_file_is_refused() -> None:
    with pytest.raises(InfradocError, match="no regular file"):
        load_spec(Path("/dev/zero"))
