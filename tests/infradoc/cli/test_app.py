"""Dispatch: fast help, exit codes, one sentence for every fault."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from infradoc.cli import app
from infradoc.errors import InfradocError

HEAVY = {"numpy", "httpx", "textual", "torch", "rich", "typer", "pydantic", "yaml", "psutil"}


def command_line(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "infradoc", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['infradoc', '--help']\n"
        "from infradoc.__main__ import main\n"
        "assert main() == 0\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(ast.literal_eval(done.stderr))
    assert not loaded & HEAVY
    for word in ("look:", "act:", "run:", "learn:", "diagnose", "record", "serve", "playbook", "Exit codes"):
        assert word in done.stdout


def test_every_command_is_there_and_says_what_the_help_says() -> None:
    for command in app.commands().values():
        module = import_module(f"infradoc.cli.{command.module}")
        assert callable(module.run), command.name
        assert command.summary == module.SUMMARY, command.name


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch([]) == 2
    assert app.dispatch(["diagnos"]) == 2
    assert app.dispatch(["diagnose"]) == 2
    assert app.dispatch(["diagnose", "x", "--format", "pdf"]) == 2
    assert app.dispatch(["diagnose", "http://h:1", "--window", "soon"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean `infradoc diagnose`?" in told and "'soon' is no duration" in told
    assert all(line.startswith("infradoc: ") for line in told.splitlines())


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["--help"]) == 0 and app.dispatch(["--version"]) == 0
    assert app.dispatch(["diagnose", "--help"]) == 0
    assert "infradoc 0." in capsys.readouterr().out


class _Module:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def run(self, argv: list[str]) -> int:
        if self.error is not None:
            raise self.error
        return 7


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (None, 7, ""),
        (InfradocError("It is so.", "Do that."), 2, "infradoc: It is so. Do that.\n"),
        (InfradocError("\x1b]0;title\x07 is no target."), 2, "infradoc: \\x1b]0;title\\x07 is no target.\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(3), 3, ""),
        (ZeroDivisionError("division\nby zero"), 1, "infradoc: Internal error: ZeroDivisionError: division by zero."),
        (OSError(28, "No space left on device", "x.db"), 1, "infradoc: x.db cannot be written: the disk under it is"),
        (OSError(27, "File too large"), 1, "infradoc: The output or a file cannot be written: it would be larger"),
        (OSError(122, "Disk quota exceeded"), 1, "infradoc: The output or a file cannot be written: the quota of"),
    ],
)
def test_faults_become_one_sentence(
    error: BaseException | None,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("INFRADOC_DEBUG", raising=False)
    monkeypatch.setattr(app, "import_module", lambda name: _Module(error))
    assert app.dispatch(["diagnose"]) == code
    err = capsys.readouterr().err
    assert err.startswith(told) and err.count("\n") <= 1 and "Traceback" not in err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_DEBUG", "1")
    monkeypatch.setattr(app, "import_module", lambda name: _Module(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        app.dispatch(["diagnose"])


def test_reader_that_goes_away(tmp_path: Path) -> None:
    """`infradoc ... | true`: no traceback, no complaint."""
    script = f"{sys.executable} -P -m infradoc --help; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({script}) | true"], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_terminal_without_unicode(recordings_dir: Path) -> None:
    done = command_line("diagnose", str(recordings_dir / "vllm-03"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "Healthy" in done.stdout and done.stderr == ""


def test_interrupt_is_quiet(closed_port: int, server: object, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)  # type: ignore[attr-defined]
    url = server.url  # type: ignore[attr-defined]
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "infradoc", "diagnose", url, "--window", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not server.requests and time.monotonic() < deadline:  # type: ignore[attr-defined]
        time.sleep(0.05)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130 and "Traceback" not in err and out == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("shell", [">/dev/full", ">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_takes_nothing_is_no_internal_error(shell: str) -> None:
    command = f"{sys.executable} -P -m infradoc playbook {shell}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Internal error" not in done.stderr and "Traceback" not in done.stderr
    assert ("the disk under it is full" in done.stderr) == (shell == ">/dev/full")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_cut_off_is_told(tmp_path: Path, unbuffered: str) -> None:
    """A disk that fills up takes a part: unbuffered, as in containers, Python lets the rest go without an error."""
    command = f"ulimit -f 1; exec {sys.executable} -P -m infradoc rules list > {tmp_path / 'out'}"
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 1 and "cannot be written: it would be larger" in done.stderr
    assert done.stderr.count("\n") == 1 and (tmp_path / "out").stat().st_size == 1024


def test_a_certificate_file_that_is_a_pipe_holds_nothing_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    argv = ["bench", "https://127.0.0.1:9", "--ca", str(tmp_path / "pipe"), "--duration", "1s"]
    assert app.dispatch(argv) == 2
    assert "cannot be used: it is no regular file. Give a PEM file." in capsys.readouterr().err
