"""Threads for what may take long. They talk to the screen by messages only, and nobody waits for them at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from textual.message import Message
from textual.message_pump import MessagePump


def spawn(work: Callable[[], None], name: str, must_end: bool = False) -> None:
    """Run `work` in a thread. `must_end`: the program does not end before it, as a change has to be taken back."""
    threading.Thread(target=work, name=name, daemon=not must_end).start()


def post(receiver: MessagePump, message: Message) -> None:
    """Tell a screen something. A screen that has gone meanwhile needs to know nothing."""
    with suppress(RuntimeError):  # its event loop is closed
        receiver.post_message(message)
