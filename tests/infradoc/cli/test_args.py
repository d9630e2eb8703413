"""Values of flags: what is no number of seconds is refused with a sentence."""

from __future__ import annotations

import pytest

from infradoc.cli import fix
from infradoc.cli.args import duration, moment
from infradoc.errors import InfradocError


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("2m", 120), ("500ms", 0.5), ("0", 0), ("1.5 h", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "-1s", "1e3", "", "s", "9" * 400, "999999999h"])
@pytest.mark.parametrize("flag", ["--cooldown", "--settle", "--hold", "--baseline", "--window"])
def test_what_is_no_duration_is_refused_with_a_sentence(flag: str, text: str) -> None:
    with pytest.raises(InfradocError, match=rf"Argument {flag}: '.*' is ") as caught:
        fix.parser().parse_args(["http://127.0.0.1:1", f"{flag}={text}"])
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "NaN", "1e999", "yesterday"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="is no time; write Unix seconds"):
        moment(text)
