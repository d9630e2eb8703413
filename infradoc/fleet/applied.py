"""The changes that infradoc made on one server, read again only when the journal has grown."""

from __future__ import annotations

import time

from infradoc.remediation.journal import ChangeRecord, Journal, JournalError
from infradoc.remediation.session import RECENT_SECONDS


class AppliedChanges:
    """Looks at the journal of one server. A journal that cannot be read is told in `error`, and the last state kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._journal = Journal()
        self._stamp: tuple[int, int] | None = None
        self._changes: tuple[ChangeRecord, ...] = ()
        self.error: str | None = None

    def read(self) -> tuple[ChangeRecord, ...]:
        """All changes of this server, oldest first."""
        try:
            stat = self._journal.path.stat()
        except OSError:  # there is none yet
            return self._changes
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp != self._stamp:
            try:
                self._changes = tuple(self._journal.changes(self._url)) if self._url else ()
                self.error = None
            except JournalError as error:
                self.error = str(error)
            self._stamp = stamp
        return self._changes

    def recent_actions(self, started: float | None = None) -> frozenset[str]:
        """Names of actions in force that are not old, so that no rule advises their opposite.

        `started`: when the server's process began; what was changed in an earlier one is in force no more.
        """
        since = time.time() - RECENT_SECONDS
        recent = (one for one in self._changes if one.open and one.last.time >= since)
        return frozenset(one.intent.action for one in recent if one.is_of(started))
