"""`infradoc alerts`: test, list, replay, silence; a sentence for everything."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.config import alerts_config
from infradoc.alerts.database import Database
from infradoc.alerts.lease import Lease
from infradoc.alerts.outbox import Outbox, Result
from infradoc.cli import app
from infradoc.config import load_config

Run = Callable[..., tuple[int, str, str]]
FINDING = {
    "id": "kv-thrashing-preemption", "severity": "critical", "confidence": 0.9, "role": "root",
    "title": "Blocks \x1b[2J", "cause": "c", "impact": "i", "evidence": [], "actions": [], "falsifier": "f",
    "explains": [], "playbook": "p",
}  # fmt: skip


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))  # type: ignore[attr-defined]
        self.send_response(200 if "/good" in self.path else 410)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def taker() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    server.got = []  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(clean_environment: Path, taker: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    url = f"http://127.0.0.1:{taker.server_address[1]}"
    text = '[alerts]\nstate = "state"\ngroup_wait = "0s"\n'
    for name in ("good", "bad"):
        text += f'[alerts.sinks.{name}]\nkind = "webhook"\nurl = "{url}/{name}"\nallow_private = true\n'
    text += '[alerts.sinks.unset]\nkind = "slack"\nurl_env = "NOT_SET_ANYWHERE"\n'
    (clean_environment / "infradoc.toml").write_text(text)

    def go(*words: str) -> tuple[int, str, str]:
        code = app.dispatch(["alerts", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return go


@pytest.fixture
def told(run: Run, clean_environment: Path) -> Database:
    """A watch has told of one finding; nothing is delivered yet."""
    config = alerts_config(load_config())
    sinks = {name: sink for name, sink in config.sinks.items() if name != "unset"}
    alerting = Alerting(replace(config, sinks=sinks))
    now = time.time()
    alerting.observe(now, "prod", "vllm", [FINDING])
    alerting.step(now)
    alerting.stop(0)
    return Database(clean_environment / "state")


def test_test_sends_now_and_says_what_came_back(run: Run, taker: Any) -> None:
    code, out, _ = run("test")
    assert code == 1
    good, bad, unset = out.splitlines()
    assert good == "good (webhook): delivered: HTTP 200"
    assert bad == "bad (webhook): not delivered: The receiver says that it is gone for good (HTTP 410)."
    assert unset.startswith("unset (slack): not delivered: The variable NOT_SET_ANYWHERE")
    assert taker.got[0]["type"] == "infradoc.test"
    assert "nothing is wrong" in taker.got[0]["data"]["incidents"][0]["title"]
    assert run("test", "good")[0] == 0


def test_names_that_are_none(run: Run, clean_environment: Path) -> None:
    code, _, err = run("test", "godo")
    assert code == 2 and err == "infradoc: infradoc.toml names no sink 'godo'. Did you mean good?\n"
    (clean_environment / "infradoc.toml").write_text("")
    assert "names no sinks. Add an [alerts.sinks.NAME] table" in run("test")[2]


def test_the_file_is_called_by_its_own_name(run: Run, clean_environment: Path) -> None:
    other = clean_environment / "ops.toml"
    other.write_text('[targets.prod]\nurl = "http://127.0.0.1:1"\n')
    assert run("test", "--config", str(other))[2].startswith("infradoc: ops.toml names no sinks.")
    assert run("replay", "--sink", "x", "--config", str(other))[2].startswith("infradoc: ops.toml names no sink 'x'.")
    told = run("silence", "target=prd", "--for", "1h", "--config", str(other))[2]
    assert told.startswith("ops.toml names no target 'prd'; there are: prod.")


def test_list_tells_what_is_open_and_unsent(run: Run, told: Database) -> None:
    code, out, _ = run("list")
    assert code == 0 and "[critical] firing: Blocks \\x1b[2J (prod)" in out
    assert "good (webhook): 1 waiting, 0 given up, no alert delivered yet" in out and "silences:\n  none" in out
    code, out, _ = run("list", "--json")
    shown = json.loads(out)
    assert shown["incidents"][0]["state"] == "firing" and len(shown["waiting"]) == 2
    assert shown["sinks"]["unset"]["waiting"] == 0


def test_list_marks_what_a_silence_mutes(run: Run, told: Database) -> None:
    run("silence", "target=other", "--for", "1h")
    assert "[critical] firing: Blocks" in run("list")[1]
    run("silence", "target=prod", "--for", "1h")
    assert "[critical] firing, silenced: Blocks" in run("list")[1]
    assert json.loads(run("list", "--json")[1])["incidents"][0]["silenced"] is True


def test_list_before_anything_happened(run: Run) -> None:
    code, out, _ = run("list")
    assert code == 0 and "none open" in out


def test_a_switched_off_sink_is_told_and_replay_switches_it_on(run: Run, told: Database) -> None:
    outbox = Outbox(told)
    (bad,), (good,) = (outbox.heads(name, time.time(), 1, ()) for name in ("bad", "good"))
    outbox.settle(
        [Result(bad, "disable", time.time(), "Gone for good."), Result(good, "dead", time.time(), "HTTP 400")]
    )
    out = run("list")[1]
    assert "switched off: Gone for good. `infradoc alerts replay --sink bad` switches it on." in out
    assert f"{good.id} to good" in out and "HTTP 400" in out
    code, out, _ = run("replay")
    assert code == 0 and "bad is switched on again." in out and "1 message queued again, 1 message waits for" in out
    assert "; the next `infradoc watch` sends what there is." in out
    outbox.settle(
        [Result(bad, "disable", time.time(), "Gone for good."), Result(good, "dead", time.time(), "HTTP 400")]
    )
    lease = Lease(told.path.parent)
    assert "; the running `infradoc watch` sends" in run("replay", "--sink", "bad", "--since", "1s")[1]
    lease.release()
    outbox.settle([Result(bad, "disable", time.time(), "Gone for good.")])
    code, out, _ = run("replay", "--sink", "bad")
    assert code == 0 and out.splitlines()[0].startswith("0 messages queued") and "bad is switched on again." in out
    assert run("replay", "--since", "1h")[1].startswith("1 message queued again")
    assert outbox.heads("good", time.time() + 1, 1, ())[0].id == good.id
    assert "There is no sent or given-up message 'nope'" in run("replay", "nope")[2]
    told.close()


def test_silences(run: Run) -> None:
    code, out, _ = run("silence", "target=prod", "finding=~kv-.*", "--for", "2h", "--comment", "night")
    assert code == 0 and "silences target=prod finding=~kv-.* until " in out
    name = out.split()[0]
    listed = run("silence", "list")[1]
    assert name in listed and ": night" in listed
    assert json.loads(run("silence", "list", "--json")[1])[0]["id"] == name
    assert run("silence", "expire", name) == (0, f"{name} has ended.\n", "")
    assert run("silence", "list")[1] == "  none\n"


def test_a_silence_of_a_target_that_no_file_names_is_kept_and_told(run: Run, clean_environment: Path) -> None:
    with (clean_environment / "infradoc.toml").open("a") as file:
        file.write('[targets.prod]\nurl = "http://127.0.0.1:1"\n')
    assert run("silence", "target=prod", "--for", "1h")[2] == ""
    assert run("silence", "target=~pr.*", "--for", "1h")[2] == ""
    code, out, err = run("silence", "target=prd", "--for", "1h")
    assert code == 0 and err == (
        "infradoc.toml names no target 'prd'; there are: prod. "
        f"If that is a slip: infradoc alerts silence expire {out.split()[0]}\n"
    )


@pytest.mark.parametrize(
    ("matcher", "told"),
    [
        ("finding=kv-thrashing-preemption", ""),
        ("finding=~kv-.*", ""),
        ("finding!=no-such-thing", ""),
        (
            "finding=kv-thrashing-preemptions",
            "There is no finding 'kv-thrashing-preemptions'; did you mean kv-thrashing",
        ),
        ("finding=zzz", "There is no finding 'zzz'; `infradoc rules list` shows them."),
        ("finding=~vk-.*", "No finding matches 'vk-.*'; "),
    ],
)
def test_a_silence_of_a_finding_that_no_rule_tells_is_kept_and_told(run: Run, matcher: str, told: str) -> None:
    code, out, err = run("silence", matcher, "--for", "1h")
    assert code == 0 and err.startswith(told) and bool(err) == bool(told)
    assert not told or err.endswith(f"If that is a slip: infradoc alerts silence expire {out.split()[0]}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("silence", "target=prod"), "For how long? Add for example --for 2h"),
        (("silence", "add", "--for", "2h"), "What is to be silenced?"),
        (("silence", "host=a", "--for", "2h"), "'host' is no label; valid are target, finding, severity."),
        (("silence", "target=~(", "--for", "2h"), "is no pattern that RE2 takes"),
        (("silence", "target=a", "--for", "soon"), "'soon' is no duration"),
        (("silence", "target=a", "--for", "0s"), "no duration from 1ms"),
        (("silence", "expire"), "Which silence is to end?"),
        (("silence", "expire", "x"), "There is no silence 'x' in force."),
        (("replay", "--sink", "x"), "names no sink 'x'"),
        ((), "The following arguments are required"),
        (("lst",), "invalid choice"),
    ],
)
def test_faults_are_one_sentence(run: Run, words: tuple[str, ...], told: str) -> None:
    code, out, err = run(*words)
    assert code == 2 and out == "" and err.startswith("infradoc: ") and told in err and err.count("\n") == 1


def test_help_of_every_part(run: Run) -> None:
    for words in (("--help",), ("test", "--help"), ("list", "--help"), ("replay", "--help"), ("silence", "--help")):
        code, out, _ = run(*words)
        assert code == 0 and "usage: infradoc alerts" in out


def test_a_silence_on_a_full_disk_is_not_said_to_wait(run: Run, told: Database) -> None:
    """RLIMIT_FSIZE makes writes fail as a full disk does."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, kept[1]))
    try:
        code, _, err = run("silence", "target=prod", "--for", "2h")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert code == 1 and "full or failing. Free the disk; nothing is changed until then." in err
    assert "none" in run("silence", "list")[1]
