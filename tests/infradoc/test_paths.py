"""Paths that people write: what cannot be one is a sentence, in every command and in every key of infradoc.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.alerts.config import alerts_config
from infradoc.cli import app
from infradoc.config import ConfigError, find_config, load_config
from infradoc.monitor.attach import TargetError, is_recording
from infradoc.paths import written_path
from infradoc.service.config import read_watch

NOBODY = "~nobody-of-this-name/x"
SINK = '[alerts.sinks.s]\nkind = "webhook"\nurl = "https://h.example/x"\n'
TARGET = '[targets.a]\nurl = "http://127.0.0.1:9"\n'
KEYS = {
    "targets.a.log": TARGET + "log = {}\n",
    "targets.a.auth.ca_file": TARGET + "[targets.a.auth]\nca_file = {}\n",
    "watch.history": TARGET + "[watch]\nhistory = {}\n",
    "alerts.state": TARGET + "[alerts]\nstate = {}\n",
    "alerts.sinks.s.ca_file": TARGET + SINK + "ca_file = {}\n",
    "alerts.sinks.s.secret_file": TARGET + SINK + "secret_file = [{}]\n",
}


@pytest.fixture
def circle(tmp_path: Path) -> str:
    """A link to itself."""
    (tmp_path / "circle").symlink_to("circle")
    return str(tmp_path / "circle" / "x")


def read_all(path: Path) -> None:
    config = load_config(str(path))
    read_watch(config)
    alerts_config(config)


@pytest.mark.parametrize("key", KEYS)
def test_a_path_of_nobody_names_its_key(key: str, tmp_path: Path) -> None:
    path = tmp_path / "infradoc.toml"
    path.write_text(KEYS[key].format(f'"{NOBODY}"'))
    with pytest.raises(ConfigError, match=f"{key}: is no usable path: Could not determine home directory"):
        read_all(path)


@pytest.mark.parametrize("key", KEYS)
def test_links_in_a_circle_are_no_internal_error(key: str, tmp_path: Path, circle: str) -> None:
    path = tmp_path / "infradoc.toml"
    path.write_text(KEYS[key].format(f'"{circle}"'))
    try:
        read_all(path)  # newer Pythons find no fault in such a path before it is opened
    except ConfigError as error:
        assert "circle" in str(error) or "loop" in str(error)


def test_a_number_of_thousands_of_digits_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "infradoc.toml"
    path.write_text(f"{TARGET}[watch]\nperiod = {'9' * 5000}\n")
    with pytest.raises(ConfigError, match=r"infradoc\.toml: cannot be read: .*digits"):
        read_all(path)


def test_a_folder_that_may_not_be_searched_holds_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo -u other infradoc ...` in a home: root may search it, so the system call stands in for the other user."""
    refused = PermissionError(13, "Permission denied")

    def stat(self: Path, **_: object) -> object:
        raise refused

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFRADOC_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "stat", stat)
    assert find_config() is None
    with pytest.raises(ConfigError, match=r"x\.toml cannot be read: Permission denied"):
        find_config("x.toml")
    from infradoc.config import Config

    with pytest.raises(TargetError, match="'x' is no usable path: Permission denied"):
        is_recording("x", Config())


@pytest.mark.parametrize("command", ["diagnose", "lengths", "fix", "undo", "watch"])
def test_commands_take_the_home_of_nobody_for_a_wrong_argument(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFRADOC_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert app.dispatch([command, NOBODY]) == 2
    assert app.dispatch([command, "--config", NOBODY, "http://127.0.0.1:9"]) == 2
    told = capsys.readouterr().err
    assert "Internal error" not in told and told.count("\n") == 2
    assert "The configuration file ~nobody-of-this-name/x cannot be read" in told


def test_a_written_path_is_absolute_from_its_folder(tmp_path: Path) -> None:
    assert written_path("a/../b", tmp_path) == tmp_path.resolve() / "b"
    assert written_path("a") == Path("a") and written_path("~/a") == Path.home() / "a"
    with pytest.raises(ValueError, match="null"):
        written_path("a\0b", tmp_path)
