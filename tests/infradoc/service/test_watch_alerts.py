"""From a line in a server's log to a signed message at a receiver, in each receiver's language."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from standardwebhooks import Webhook

pytestmark = pytest.mark.usefixtures("clean_environment")
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
XID = "NVRM: Xid (PCI:0000:81:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"


def test_a_finding_reaches_receivers_in_their_languages(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, httpserver: HTTPServer
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 07:40:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    for path in ("/en", "/zh"):
        httpserver.expect_request(path, method="POST").respond_with_data("ok")
    config = f'[targets.prod]\nurl = "{server.url}"\nhost = false\nlog = "{log}"\n[watch]\nperiod = "0.5s"\n'
    config += '[alerts]\ngroup_wait = "0s"\n'
    for lang in ("en", "zh"):
        config += (
            f'[alerts.sinks.{lang}]\nkind = "webhook"\nurl = "{httpserver.url_for("/" + lang)}"\nlang = "{lang}"\n'
        )
        config += 'allow_private = true\nsecret_env = ["HOOK_SECRET"]\n'
    running = watch(config, env={"HOOK_SECRET": SECRET})
    running.url()
    time.sleep(2.0)  # what the log held before the first look counts as old
    with log.open("a") as out:
        out.write(XID)
    running.wait_for("fired")
    end = time.monotonic() + 60
    while len(httpserver.log) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    bodies = {}
    for request, _ in httpserver.log:
        Webhook(SECRET).verify(request.data, dict(request.headers))
        bodies[request.path] = json.loads(request.data)
    texts = {path: json.dumps(body, ensure_ascii=False) for path, body in bodies.items()}
    assert all("gpu-hardware-error" in text and "prod" in text for text in texts.values())
    assert not any("\u4e00" <= char <= "\u9fff" for char in texts["/en"])
    assert sum("\u4e00" <= char <= "\u9fff" for char in texts["/zh"]) > 30
    assert running.end() == 0
    assert SECRET not in json.dumps(running.seen)


def test_a_sink_that_refuses_is_said_and_shown(
    server: Any, vllm_page: bytes, watch: Callable[..., Any], tmp_path: Path, httpserver: HTTPServer
) -> None:
    server.page("/metrics", vllm_page)
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 07:40:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    httpserver.expect_request("/hook", method="POST").respond_with_data("no such hook", status=410)
    config = f'[targets.prod]\nurl = "{server.url}"\nhost = false\nlog = "{log}"\n[watch]\nperiod = "0.5s"\n'
    config += (
        f'[alerts]\ngroup_wait = "0s"\n[alerts.sinks.ops]\nkind = "webhook"\nurl = "{httpserver.url_for("/hook")}"\n'
    )
    running = watch(config + 'allow_private = true\nsecret_env = ["HOOK_SECRET"]\n', env={"HOOK_SECRET": SECRET})
    url = running.url()
    time.sleep(2.0)  # what the log held before the first look counts as old
    with log.open("a") as out:
        out.write(XID)
    assert "alerts do not reach ops" in running.wait_for("trouble")["text"]
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{url}/health", timeout=10)
    assert running.end() == 0
