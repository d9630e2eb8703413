"""Looking at this machine: whose processes are the server's and its clients', and whose are not."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infradoc.remediation.neighbours import Use
from infradoc.remediation.own_processes import MachineWatch, busy_seconds, clients_of, server_pids, waited_seconds
from infradoc_rules.frame import MemoryFrame
from infradoc_rules.model import Series

BURN = "while True: pass"
DETACH = (
    "import subprocess, sys; quiet = subprocess.DEVNULL;"
    "print(subprocess.Popen(sys.argv[1:], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True).pid)"
)
CALL = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print(1, flush=True); s.recv(1)"
)
ENOUGH = 0.5  # CPU seconds
TICKS = 0.1  # CPU seconds that counters of whole ticks may differ by


def frame(*processes: tuple[int, str, float]) -> MemoryFrame:
    """What a look at the server's processes gives: PID, role, and whether it is stopped."""
    return MemoryFrame.build(
        [Series("proc_stopped", {"role": role, "pid": str(pid)}, [1.0], [value]) for pid, role, value in processes]
    )


@pytest.fixture
def burner() -> Iterator[Callable[[bool], psutil.Process]]:
    """Starts a busy loop: a child of this process, or somebody else's."""
    started: list[psutil.Process] = []

    def start(child: bool) -> psutil.Process:
        command = [sys.executable, "-c", BURN]
        if child:
            started.append(psutil.Popen(command))
        else:
            told = subprocess.run(
                [sys.executable, "-c", DETACH, *command], capture_output=True, text=True, check=True, timeout=60
            )
            started.append(psutil.Process(int(told.stdout)))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(10)


def burn(process: psutil.Process, seconds: float) -> None:
    """Wait until it has used so many CPU seconds more."""
    begin = cpu(process)
    while cpu(process) < begin + seconds:
        time.sleep(0.05)


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.mark.parametrize("child", [True, False])
def test_a_busy_loop_of_somebody_else_is_a_neighbour_and_our_own_is_not(
    burner: Callable[[bool], psutil.Process], child: bool
) -> None:
    """This process stands for the server. Whatever else the machine does meanwhile, it is busy with that too."""
    watch, seen = MachineWatch(), frame((os.getpid(), "api", 0.0))
    process = burner(child)
    begin, busy = time.time(), busy_seconds(psutil.cpu_times())
    watch.look(seen)
    looked = time.time()
    burn(process, ENOUGH)
    least = time.time() - looked
    watch.look(seen)
    end, busy = time.time(), busy_seconds(psutil.cpu_times()) - busy
    use = watch.use(begin, end)
    assert use is not None and use.cores == psutil.cpu_count()
    if child:
        assert use.others * least <= busy - ENOUGH + TICKS
    else:
        assert use.others * (end - begin) >= ENOUGH - TICKS


def test_clients_are_known_by_their_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        command = [sys.executable, "-c", CALL, host, str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
            accepted, _ = listener.accept()
            with accepted:
                assert caller.stdout is not None and caller.stdout.readline()
                assert clients_of({os.getpid()}) == ({caller.pid}, set())
                assert clients_of({1}) == (set(), set())


def test_a_client_that_may_not_be_seen_leaves_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's sockets have no process for one who is not root."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            mine = client.getsockname()[1]
            real = psutil.net_connections

            def without(kind: str) -> list[Any]:
                return [one._replace(pid=None) if one.laddr and one.laddr.port == mine else one for one in real(kind)]

            assert used() is not None
            monkeypatch.setattr(psutil, "net_connections", without)
            assert used() is None


def used() -> Use | None:
    """What others took between two looks, this process standing for the server."""
    watch, seen = MachineWatch(), frame((os.getpid(), "engine", 0.0))
    watch.look(seen)
    begin = time.time()
    watch.look(seen)
    time.sleep(0.02)
    watch.look(seen)
    return watch.use(begin, time.time())


def test_only_a_recognised_server_on_this_machine_is_looked_at() -> None:
    assert server_pids(frame((7, "api", 0.0), (8, "tokenizer", 0.0), (9, "other", 0.0))) == {7, 8, 9}
    assert server_pids(frame((7, "other", 0.0))) == set()  # a forwarded port
    assert server_pids(frame((7, "engine", math.nan), (8, "other", 0.0))) == set()  # it has ended
    page = Series("proc_cpu_seconds_total", {"role": "api", "pid": "1"}, [1.0], [5.0])
    assert server_pids(MemoryFrame.build([page])) == set()
    watch = MachineWatch()
    watch.look(MemoryFrame.build([page]))
    assert watch.use(0.0, time.time()) is None


def test_the_kernels_account_of_waiting(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    assert waited_seconds(path) is None
    path.write_text("")
    assert waited_seconds(path) is None
    path.write_text(
        "some avg10=98.49 avg60=86.91 avg300=47.95 total=16664868063\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert waited_seconds(path) == 16664.868063


def test_idle_waiting_for_disks_and_guests_are_no_work() -> None:
    times = psutil.cpu_times()
    assert 0 < busy_seconds(times) <= sum(times) - times.idle
