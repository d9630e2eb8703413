"""The command: what it refuses before it takes the terminal, and ending by signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infradoc.cli import tui
from infradoc.errors import InfradocError


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no TARGET"),
        (["http://127.0.0.1:1"], "needs a terminal"),
        (["http://127.0.0.1:1", "--every", "1ms"], "at least 100ms"),
        (["http://127.0.0.1:1", "--config", "nowhere.toml"], "no configuration file"),
    ],
)
def test_refusals_are_sentences(argv: list[str], said: str) -> None:
    with pytest.raises(InfradocError, match=said):
        tui.run(argv)


@pytest.mark.parametrize("argv", [["no-such-target"], ["./no-such-recording"]])
def test_targets_that_are_none_are_told_before_the_screen(argv: list[str]) -> None:
    args = tui.parser().parse_args(argv)
    with pytest.raises(InfradocError, match="no-such"):
        tui.make_views(args.targets, tui.Config(), args)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_lost_terminal_or_a_kill_ends_it_in_order(
    number: signal.Signals, recordings_dir: Path, clean_environment: Path
) -> None:
    main, side = pty.openpty()
    command = [sys.executable, "-P", "-m", "infradoc", "tui", str(recordings_dir / "vllm-16")]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    child = subprocess.Popen(command, stdin=side, stdout=subprocess.PIPE, stderr=side, env=environment)
    os.close(side)
    seen = bytearray()
    up = threading.Event()

    def read() -> None:
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other end is closed
                return
            seen.extend(piece)
            if b"Throughput" in seen:
                up.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert up.wait(30), bytes(seen[-400:])
        child.send_signal(number)
        assert child.wait(20) == 0
        assert b"Traceback" not in seen and child.stdout is not None and child.stdout.read() == b""
        assert b"\x1b[?1049l" in seen  # the screen that was there before is back
    finally:
        child.kill()
        child.wait()
        reader.join(5)
        os.close(main)
