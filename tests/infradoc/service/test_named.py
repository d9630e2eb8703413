"""A log that is named and shows nothing: said once, shown on the pages, said again when it is over."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infradoc.fleet.model import Watched
from infradoc.service.named import NamedSources
from infradoc.service.troubles import Troubles
from infradoc.service.words import _TEXTS, say

pytestmark = pytest.mark.usefixtures("clean_environment")


def state(error: str | None = None, up: bool = True) -> Watched:
    return Watched("prod", "prod", up=up, error=error)


def test_said_once_after_a_moment_and_once_when_it_is_over() -> None:
    said: list[tuple[str, str]] = []
    troubles = Troubles(lambda event, text: said.append((event, text)))
    named = NamedSources(troubles, "en")
    named.look(100.0, state("The source log shows nothing: there is no file f."))
    named.look(101.0, state())
    assert said == []  # a rotation
    for now in range(110, 130):
        named.look(float(now), state("The source log shows nothing: there is no file f."))
    named.look(130.0, state("it refuses the connection", up=False))  # that it is lost is told elsewhere
    assert list(troubles.now) == ["target prod"]
    named.look(131.0, state())
    named.look(132.0, state())
    assert said == [
        ("trouble", "prod: The source log shows nothing: there is no file f."),
        ("back", "prod: what the configuration names is read again"),
    ]
    assert troubles.now == {}


def test_a_target_that_is_removed_has_no_trouble() -> None:
    troubles = Troubles(lambda event, text: None)
    named = NamedSources(troubles, "zh")
    for now in (1.0, 9.0):
        named.look(now, state("x"))
    assert troubles.now == {"target prod": "prod：x"}
    named.forget("prod")
    assert troubles.now == {}


def health(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('log = "there.log"', "there is no file"),
        ('log_command = ["sh", "-c", "test -e there.log && exec sleep 60; echo no such pod >&2; exit 3"]', "code 3"),
        ('log_command = ["./there.log"]', "there is no program ./there.log"),
    ],
    ids=["no file", "ends at once", "no program"],
)
def test_the_real_watch_tells_it(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, line: str, told: str
) -> None:
    server.page("/metrics", vllm_page)
    config = f'[targets.prod]\nurl = "{server.url}"\nhost = false\n{line}\n[watch]\nperiod = "0.5s"\n'
    running = watch(config)
    url = running.url()
    text = running.wait_for("trouble")["text"]
    assert text.startswith("prod: The ") and told in text
    status, page = health(url)
    assert status == 503 and page["troubles"] == {"target prod": text} and page["late"] == []
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        assert b"infradoc_watch_troubles 1.0" in answer.read()
    there = tmp_path / "there.log"
    there.write_text("#!/bin/sh\nexec sleep 60\n")
    there.chmod(0o700)
    assert running.wait_for("back")["text"] == "prod: what the configuration names is read again"
    assert [one["text"] for one in running.seen if one["event"] == "trouble"] == [text]
    assert health(url) == (200, {"healthy": True, "late": [], "troubles": {}, "set_aside": []})
    assert running.end() == 0


def test_what_the_watch_says_is_said_in_both_languages(
    server: Any, vllm_page: bytes, watch: Callable[..., Any]
) -> None:
    server.page("/metrics", vllm_page)
    running = watch(f'[targets.prod]\nurl = "{server.url}"\nhost = false\nlog = "none.log"\n', "--lang", "zh")
    assert running.wait_for("watching")["text"].startswith("prod；告警发往 无人")
    assert running.wait_for("trouble")["text"].startswith("prod：数据源 log 没有数据：没有文件 ")
    assert running.end() == 0
    assert running.wait_for("stopping")["text"].startswith("现在停止")


@pytest.mark.parametrize("key", _TEXTS)
def test_both_texts_have_the_same_parts(key: str) -> None:
    class Parts(dict[str, object]):
        def __missing__(self, name: str) -> float:
            self[name] = 1.0
            return 1.0

    english, chinese = Parts(), Parts()
    _TEXTS[key][0].format_map(english)
    _TEXTS[key][1].format_map(chinese)
    assert english == chinese
    assert say("fr", key, **english) == say("en", key, **english) != say("zh", key, **english) or key in (
        "lost", "resolved", "change", "no_source", "fired",
    )  # fmt: skip
