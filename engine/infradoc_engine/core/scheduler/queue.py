"""Requests that wait: first come, first served, but those that lost their blocks stand at the head."""

from __future__ import annotations

from collections import deque

from infradoc_engine.core.request import Request


class RequestQueue:
    """A queue with a way in at both ends and out from anywhere."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def append(self, request: Request) -> None:
        """Wait behind all others."""
        self._requests.append(request)

    def push_head(self, request: Request) -> None:
        """Wait before all others. Victims come in from the last admitted on, so they end up in order of admission."""
        self._requests.appendleft(request)

    @property
    def head(self) -> Request:
        """The next one to admit; IndexError when none waits."""
        return self._requests[0]

    def remove(self, request: Request) -> None:
        """Take `request` out, in O(1) at the head; ValueError when it does not wait."""
        if self._requests and self._requests[0] is request:
            self._requests.popleft()
        else:
            self._requests.remove(request)

    def snapshot(self) -> list[Request]:
        """All, the head first. A copy, made in one call of C code: safe to ask for from another thread."""
        return list(self._requests)
