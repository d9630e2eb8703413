"""What the watch says while it runs: one line an event, for people or as JSON."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from infradoc.errors import visible


class Lines:
    """Writes lines to a stream, whole, from any thread."""

    def __init__(self, as_json: bool = False, stream: TextIO | None = None) -> None:
        self._json, self._stream = as_json, stream or sys.stdout
        self._guard = threading.Lock()
        self._broken = False

    def say(self, now: float, event: str, text: str, **more: Any) -> None:
        """`event` is one word (fired, resolved, lost, back, trouble, reload ...); `more` goes into the JSON form."""
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if self._json:
            line = json.dumps({"time": stamp, "event": event, "text": text, **more}, ensure_ascii=False)
        else:
            line = f"{stamp} {event:<8} {visible(text)}"
        with self._guard:
            try:
                print(line, file=self._stream, flush=True)
            except (OSError, ValueError) as error:  # ValueError: the stream is closed
                self._tell_once(error)

    def _tell_once(self, error: OSError | ValueError) -> None:
        """A reader that went away or a full disk ends the lines; alerts and history go on, and they are the point."""
        if self._broken:
            return
        self._broken = True
        with suppress(OSError, ValueError):  # it may be the same pipe
            print(f"infradoc watch: its lines cannot be written: {error}. The watch goes on.", file=sys.stderr)
