"""What a command writes at its end is refused at its start when it cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.cli import app
from infradoc.cli.output import check_writable
from infradoc.errors import InfradocError

pytestmark = pytest.mark.usefixtures("clean_environment")
COMMANDS = (["demo", "--only", "kv", "--model", "nowhere"], ["bench", "http://127.0.0.1:1"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("name", "says"), [("", "is a folder"), ("none/x.json", "There is no folder")])
def test_it_is_refused_before_the_work(
    command: list[str], name: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert app.dispatch([*command, "--json", str(tmp_path / name)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and says in err and "--json" in err and err.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_a_file_that_can_be_written_is_left_alone(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json", "--json")
    assert not (tmp_path / "new.json").exists()
    old = tmp_path / "old.json"
    old.write_text("kept")
    check_writable(old, "--json")
    assert old.read_text() == "kept"
    check_writable(Path("/dev/stdout"), "--json")


def test_a_folder_without_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)
    with pytest.raises(InfradocError, match="may not be written"):
        check_writable(tmp_path / "x.json", "--json")
