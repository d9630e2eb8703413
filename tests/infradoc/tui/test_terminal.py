"""A terminal that goes away while the program still has something to do."""

from __future__ import annotations

import os
import threading

from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

from infradoc.tui.app import DoctorApp
from infradoc.tui.terminal import Surviving, SurvivingDriver


def test_nobody_waits_for_a_terminal_that_went_away() -> None:
    there, here = os.openpty()
    stream = Surviving(os.fdopen(here, "w"))
    writer = WriterThread(stream)  # type: ignore[arg-type]
    writer.start()
    writer.write("seen")
    assert os.read(there, 10) == b"seen"
    os.close(there)
    done = threading.Event()

    def draw() -> None:
        for _ in range(100):  # more than its queue holds
            writer.write("x" * 10_000)
        writer.stop()
        done.set()

    threading.Thread(target=draw, daemon=True).start()
    assert done.wait(20) and stream.is_gone


def test_the_program_draws_through_it() -> None:
    found = DoctorApp([]).get_driver_class()
    assert found is SurvivingDriver and issubclass(found, LinuxDriver)
