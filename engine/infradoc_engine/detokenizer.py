"""Token ids to text, piece by piece: whole characters only, and stop strings found across token borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_UNFINISHED = "\ufffd"  # what a decoder makes of the first bytes of a character
_CONTEXT = 6  # prompt tokens decoded along, because some tokenizers drop the space of a first token


class IncrementalDetokenizer:
    """Text of one output as it grows.

    A piece is given out when its last character is whole and no stop string can begin inside it. `stopped` turns true
    when a stop string was found; the text ends before it.
    """

    def __init__(self, decode: Decode, prompt_token_ids: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        context = list(prompt_token_ids[-_CONTEXT:])
        if context and decode(context).endswith(_UNFINISHED):
            context = []
        self._ids = context
        self._prefix = 0  # decode from here: far enough back that the decoder treats the new ids as a continuation
        self._read = len(context)  # ids before this are in the text already
        self._held = ""
        self.stopped = False

    def add(self, token_id: int) -> str:
        """Take one more token; returns the text that is safe to give out, often empty."""
        self._ids.append(token_id)
        fresh = self._fresh_text()
        if fresh is None:
            return ""
        return self._release(fresh, final=False)

    def finish(self) -> str:
        """The rest at the end of the output: held text, and the replacement character for a cut one."""
        if self.stopped:
            return ""
        fresh = self._fresh_text(force=True) or ""
        return self._release(fresh, final=True)

    def _fresh_text(self, force: bool = False) -> str | None:
        before = self._decode(self._ids[self._prefix : self._read])
        after = self._decode(self._ids[self._prefix :])
        if not force and (len(after) <= len(before) or after.endswith(_UNFINISHED)):
            return None
        self._prefix, self._read = self._read, len(self._ids)
        return after[len(before) :]

    def _release(self, fresh: str, final: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + fresh
        cut = min((index for stop in self._stop if (index := text.find(stop)) >= 0), default=-1)
        if cut >= 0:
            self.stopped = True
            self._held = ""
            return text[:cut]
        keep = 0 if final else self._possible_stop(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string may begin with."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop):
                return size
        return 0
