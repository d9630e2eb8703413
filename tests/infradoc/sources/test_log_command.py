"""A log that a command prints: a real child process that prints, ends, fails, floods and ignores the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.config import TargetConfig
from infradoc.sources.all import bind_sources
from infradoc.sources.log_command import MOST_BYTES, MOST_LINES, CommandLogSource, CommandTail

LINE = (
    "INFO 11-29 10:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput:"
    " 10.0 tokens/s, Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 90.0%, Prefix cache hit rate: 0.0%"
)


def until(ready: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_events_come_from_what_is_printed() -> None:
    source = CommandLogSource(("sh", "-c", f"for i in 1 2 3; do echo '{LINE}'; done; sleep 60"), "vllm")
    events = []

    def three() -> bool:
        reading = source.read(time.time())
        assert reading.error is None
        events.extend(reading.events)
        return len(events) >= 3

    until(three)
    assert [event.name for event in events] == ["stats_line"] * 3
    source.close()
    source.close()


def test_the_child_ends_with_the_source_even_if_it_ignores_the_request() -> None:
    tail = CommandTail(("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"))
    found: list[bytes] = []
    until(lambda: bool(found) or bool(found.extend(tail.lines())) or bool(found))
    pid = int(found[0])
    tail.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_that_ends_is_told_and_started_again_later() -> None:
    source = CommandLogSource(("sh", "-c", "exit 3"), "vllm")
    errors: list[str] = []

    def told() -> bool:
        error = source.read(time.time()).error
        errors.extend([error] if error else [])
        return any("exit code 3" in text for text in errors)

    until(told)
    assert set(errors) == {"The log command sh does not run: it ended at once with exit code 3."}
    begun = source._command._started
    until(lambda: bool(source.read(time.time())) and source._command._started > begun)
    assert "exit code 3" in (source.read(time.time()).error or ""), "a start alone is no recovery"
    source.close()


def test_what_it_said_last_is_told_once_and_printing_is_no_recovery() -> None:
    script = "date +%N; echo 'Error: no such container, password=hunter22 \033[31m'; exit 1"
    source = CommandLogSource(("sh", "-c", script), "vllm")
    until(lambda: source.read(time.time()).error is not None)
    told = source.read(time.time()).error
    assert told is not None and told.startswith(
        "The log command sh does not run: it ended at once with exit code 1. Its last line: Error: no such container"
    )
    assert "hunter22" not in told and "\033" not in told
    lines: list[str] = []
    begun = source._command._started

    def printed_again() -> bool:
        assert source.read(time.time()).error == told  # the same words, or it would be news at every start
        lines.extend(source.new_lines)
        return source._command._started > begun and bool(lines)

    until(printed_again)
    source.close()


def test_what_is_printed_by_a_command_in_trouble_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infradoc.sources.log_command._STEADY_SECONDS", 1.0)
    source = CommandLogSource(("sh", "-c", f"echo '{LINE}'; [ -e /proc/$PPID/no ] || sleep 60"), "vllm")
    source._command.trouble = "it ended at once with exit code 1."
    reading = source.read(time.time())
    events = list(reading.events)

    def came() -> bool:
        nonlocal reading
        reading = source.read(time.time())
        events.extend(reading.events)
        return bool(events)

    until(came)
    until(lambda: source.read(time.time()).error is None)  # it has run steadily
    source.close()


def test_the_last_line_counts_without_its_line_end() -> None:
    source = CommandLogSource(("printf", "gone for good"), "vllm")
    until(lambda: "Its last line: gone for good" in (source.read(time.time()).error or ""))
    source.close()


def test_what_the_command_left_behind_ends_too() -> None:
    tail = CommandTail(("sh", "-c", "sleep 600 & echo $!; wait"))
    orphan = int(first_line(tail))
    tail.close()
    until(lambda: is_gone(orphan))

    ended = CommandTail(("sh", "-c", "sleep 600 & echo $!"))  # the shell is gone, its child holds the pipe
    orphan = int(first_line(ended))

    def told() -> bool:
        ended.lines()
        return "it ended at once with exit code 0" in ended.trouble

    until(told)
    until(lambda: is_gone(orphan))
    ended.close()


KILLED = """
import os, signal, sys
from infradoc.sources.log_command import CommandTail
tail = CommandTail(tuple(sys.argv[1:]))
found = []
while not found:
    found = tail.lines()
print(found[0].decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "command",
    [
        ("sh", "-c", "echo $$; exec sleep 600"),
        ("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait"),
        (sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"),
    ],
    ids=["silent", "of a shell", "no shell"],
)
def test_a_watch_that_is_killed_leaves_no_command_behind(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, *command], stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGKILL
    until(lambda: is_gone(int(done.stdout)))


OPEN = """
import os, sys, time
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print(repr(sys.stdin.read()), [n for n in range(50) if is_open(n)], os.getpid(), os.getpgid(0), flush=True)
time.sleep(600)
"""


def test_the_command_takes_the_place_of_the_shell() -> None:
    tail = CommandTail((sys.executable, "-c", OPEN))
    line = first_line(tail).decode()
    assert tail._process is not None
    number = tail._process.pid
    assert line == f"'' [0, 1, 2] {number} {number}"
    tail.close()


ENDING = """
import threading, time
from pathlib import Path
from infradoc.sources.log_command import CommandTail
def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))
tail = CommandTail(("sh", "-c", "exit 0"))
before = open_files()
for _ in range(5):
    tail._again = 0.0
    tail.lines()
    while tail._process is not None:
        tail.lines()
        time.sleep(0.01)
tail.close()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
print(open_files() - before)
"""


def test_files_of_ended_commands_are_closed() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", ENDING], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_program_that_went_away_is_told_by_name() -> None:
    source = CommandLogSource(("no-such-program", "-f"), "vllm")
    assert "The log command no-such-program does not run: No such file" in (source.read(time.time()).error or "")
    source.close()


def first_line(tail: CommandTail) -> bytes:
    found: list[bytes] = []
    until(lambda: bool(found) or bool(found.extend(tail.lines())) or bool(found))
    return found[0]


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()  # nobody here collects an orphan
    except FileNotFoundError:
        return True


def test_long_lines_are_bounded_by_their_bytes() -> None:
    tail = CommandTail(("sh", "-c", "while :; do head -c 1000000 /dev/zero; echo; done"))
    tail.lines()
    until(lambda: tail.dropped_lines > 20)
    assert sum(map(len, tail.lines())) <= MOST_BYTES
    tail.close()


def test_a_flood_is_bounded() -> None:
    tail = CommandTail(("sh", "-c", f"yes line | head -n {MOST_LINES * 2}"))
    tail.lines()
    until(lambda: tail.dropped_lines >= MOST_LINES - 1)
    assert len(tail.lines()) <= MOST_LINES
    tail.close()


def test_a_program_that_is_not_there_is_named() -> None:
    source = CommandLogSource(("no-such-program", "-f"))
    assert not source.is_supported()
    assert source.why_not() == "there is no program no-such-program for log_command"


def test_the_configuration_binds_it() -> None:
    (source,) = bind_sources(TargetConfig(log_command=("journalctl", "-f", "-u", "vllm")))
    assert isinstance(source, CommandLogSource)
