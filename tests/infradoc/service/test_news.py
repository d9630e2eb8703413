"""What a watch says of a target: each thing once, when it begins and when it is over."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from infradoc.fleet.model import Watched
from infradoc.service.journal_lines import Lines
from infradoc.service.news import News

FULL = {"queue-saturation": {"severity": "warning", "title": "Requests wait"}}


class Heard:
    """News that are written as JSON lines."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.news = News(Lines(as_json=True, stream=self.stream), "en")

    def look(self, now: float, up: bool, found: Mapping[str, Mapping[str, Any]], known: bool = True) -> list[str]:
        """The events that one look adds."""
        self.stream.seek(0)
        self.stream.truncate()
        state = Watched("prod", "prod", up=up, error="" if up else "it refused the connection.")
        self.news.of_server(now, state)
        self.news.of_findings(now, state, found, known)
        return [json.loads(line)["event"] for line in self.stream.getvalue().splitlines()]


def test_a_finding_is_told_when_it_fires_and_when_it_is_over() -> None:
    heard = Heard()
    assert [heard.look(1, True, FULL), heard.look(2, True, FULL)] == [["fired"], []]
    assert [heard.look(3, True, {}), heard.look(4, True, {}), heard.look(5, True, FULL)] == [
        ["resolved"],
        [],
        ["fired"],
    ]


def test_what_cannot_be_judged_is_not_over() -> None:
    heard = Heard()
    heard.look(1, True, FULL)
    assert heard.look(2, False, {}, known=False) == ["lost"]
    assert heard.look(3, False, {}, known=False) == []
    assert heard.look(4, True, FULL) == ["back"]


def test_a_target_that_is_watched_again_is_new() -> None:
    heard = Heard()
    heard.look(1, True, FULL)
    heard.news.forget("prod")
    assert heard.look(2, True, FULL) == ["fired"]
