"""Python tracebacks of one process as events: the exception, and the functions on the way to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*(?:\S+\s+)?File "(?P<file>[^"]{1,300})", line \d+, in (?P<function>[\w<>.]{1,120})')
EXCEPTION = re.compile(
    r"^(?P<name>Exception|[A-Za-z_][\w.]{0,200}(?:Error|Exception|Exit|Interrupt|Warning|OutOfResources|Timeout|Died|Killed)"
    r"|[a-z_]\w{0,80}(?:\.\w{1,80}){0,8}\.[A-Z]\w{0,80})(?:\([\w.]{1,120}\))?(?:: (?P<message>.*)|:)?$"
)
_MAX_FRAMES = 200  # a recursion error prints a thousand; the last ones name the place
MESSAGE_LIMIT = 400


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception as printed. `functions` are outermost first."""

    exception: str
    message: str
    functions: tuple[str, ...]
    file: str


@dataclass
class TracebackReader:
    """Follows the lines of one process. Frames stay until the exception line that they lead to.

    `code` says that the last line was source code of a frame: what it quotes was not logged.
    """

    open: bool = False
    code: bool = False
    functions: list[str] = field(default_factory=list)
    file: str = ""
    _after_frame: bool = False

    def feed(self, message: str) -> Raised | None:
        """The exception that this line ends a traceback with; None for every other line."""
        self.code, after_frame, self._after_frame = False, self._after_frame, False
        if _HEAD in message:
            self._begin()
            return None
        if 'File "' in message and (frame := _FRAME.match(message)) is not None:
            if not self.open:  # the head was lost: cut off by a pager, or left out of the paste
                self._begin()
            self.functions.append(frame.group("function"))
            del self.functions[:-_MAX_FRAMES]
            self.file = frame.group("file")
            self._after_frame = True
            return None
        if not self.open:
            return None
        found = EXCEPTION.match(message.strip())
        if found is None:
            self.code = after_frame
            return None
        self.open = False
        name = found.group("name").rpartition(".")[2]
        return Raised(name, (found.group("message") or "")[:MESSAGE_LIMIT], tuple(self.functions), self.file)

    def _begin(self) -> None:
        self.open, self.functions, self.file = True, [], ""
