"""The engine's command line: what is wrong with it is said in one line."""

from __future__ import annotations

import pytest

from infradoc_engine.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--block-size", "1e3"], "infradoc serve: argument --block-size: invalid int value: '1e3'"),
        (["serve", "--blok-size", "16"], "unrecognized arguments: --blok-size"),
        (["serve", "--swap-space", "9" * 400], "is not a size"),
        (["serve", "--port", "99999"], "'99999' is not a port"),
        (["serve", "--preemption-mode", "swop"], "invalid choice: 'swop'"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "serve|model"),
    ],
)
def test_one_sentence_for_wrong_usage(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    out, err = capsys.readouterr()
    assert refused.value.code == 2 and out == ""
    assert says in err and err.count("\n") == 1 and err.endswith("--help\n")
