"""Any other service through apprise (extra `chat`): best effort, since it says only whether a message was taken.

It talks to the network by itself: addresses are not judged here, and it runs in a thread so that it holds up nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from infradoc.alerts.render import render
from infradoc.alerts.sinks.base import Outcome, Sink
from infradoc.alerts.sinks.fit import paragraphs_text
from infradoc.errors import InfradocError

_TYPES = {"critical": "failure", "warning": "warning", "info": "info", "resolved": "success"}


class AppriseSink(Sink):
    """`url_env` or `url_file` holds an apprise address, such as tgram://... or mailto://..."""

    kind = "apprise"
    concurrency = 1

    def check(self) -> None:
        """As the base, and the package must be there. Raises InfradocError."""
        super().check()
        if find_spec("apprise") is None:
            install = "pip install 'infradoc[chat]' (in a checkout: pip install '.[chat]')"
            raise InfradocError(f"The sink {self.name} needs the package apprise.", f"Install it: {install}.")

    def send(self, message: Mapping[str, Any]) -> Outcome:
        """Blocking; called in a thread of its own."""
        self.check()
        import apprise

        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its lines quote addresses, keys and all
        service = apprise.Apprise()
        if not service.add(self.address()):
            return Outcome("dead", "apprise does not know this kind of address")
        rendered = render(message, self.config.lang)
        taken = service.notify(
            body=paragraphs_text(rendered, self.config.lang),
            title=rendered.headline,
            notify_type=apprise.NotifyType(_TYPES.get(rendered.mood, "info")),
            body_format=apprise.NotifyFormat.TEXT,
        )
        return Outcome("delivered", "taken") if taken else Outcome("retry", "apprise could not deliver it", None, True)
