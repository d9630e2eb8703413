"""/admin/faults: off by default; each fault does what it says to a real server, and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

MIB = 1 << 20


@pytest.fixture(scope="module")
def breakable(start_server: Any) -> Any:
    return start_server(
        *("--max-model-len", "256", "--kv-pool-tokens", "1024", "--max-num-seqs", "4", "--health-stall-seconds", "0.5"),
        "--enable-faults",
    )


@pytest.fixture(autouse=True)
def all_off(breakable: Any) -> Iterator[None]:
    yield
    for fault in breakable.admin("faults")["faults"]:
        if fault["active"]:
            switch(breakable, fault["name"], active=False)


def switch(server: Any, name: str, active: bool = True, status: int = 200, **parameters: float) -> Any:
    body = {"name": name, "active": active, "parameters": parameters}
    answer = server.http.post("/admin/faults", json=body, headers=server.auth)
    assert answer.status_code == status, answer.text
    return answer.json()


def until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def shown(server: Any, name: str) -> Any:
    return next(fault for fault in server.admin("faults")["faults"] if fault["name"] == name)


def test_faults_need_the_flag(server: Any) -> None:
    assert server.admin("faults")["enabled"] is False
    answer = switch(server, "stall", status=403)
    assert "--enable-faults" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("leak_block", {}, "did you mean leak_blocks"),
        ("stall", {"minutes": 1}, "it has: seconds"),
        ("slow_step", {"seconds": -1}, "from 0 to 60"),
        ("cpu_burn", {"processes": 1.5}, "a whole number from 1 to 256"),
        ("drop_prefix_hits", {"x": 1}, "it has: none"),
    ],
)
def test_nonsense_is_422(breakable: Any, name: str, parameters: dict[str, float], says: str) -> None:
    assert says in switch(breakable, name, status=422, **parameters)["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        *('{"name": "slow_step", "activ": false}', '{"name": "slow_step", "active": 0}', '{"name": ["slow_step"]}'),
        *('{"name": "slow_step", "parameters": []}', '{"name": "slow_step", "parameters": {"seconds": NaN}}'),
        *('{"name": "slow_step", "parameters": {"seconds": [[]]}}', f'{{"name": "{"x" * 10_000}"}}'),
        f'{{"name": "slow_step", "parameters": {{"seconds": {"9" * 400}}}}}',
    ],
)
def test_hostile_bodies_are_one_sentence_and_break_nothing(breakable: Any, body: str) -> None:
    answer = breakable.http.post("/admin/faults", content=body, headers=breakable.auth)
    assert answer.status_code == 422 and len(answer.json()["error"]["message"]) < 250
    assert not shown(breakable, "slow_step")["active"]


def test_leaked_blocks_name_their_owner_and_are_reclaimed(breakable: Any) -> None:
    switch(breakable, "leak_blocks", blocks=2, requests=3)
    for index in range(5):  # the last two are spared
        breakable.complete(f"Tell me about {index}", max_tokens=20, ignore_eos=True)
    switch(breakable, "leak_blocks", active=False)
    blocks = breakable.admin("blocks")
    assert blocks["ledger"]["leaked"] == 6 == len(blocks["leaked"])
    assert breakable.metric("llm_kv_blocks", state="leaked") == 6
    owners = {item["owner"] for item in blocks["leaked"]}
    assert len(owners) == 3 and owners <= {request["id"] for request in breakable.admin("requests")["requests"]}
    assert all(item["age_seconds"] > 0 for item in blocks["leaked"])
    assert breakable.metric("llm_kv_leaked_block_age_seconds") > 0
    assert breakable.admin("blocks")["integrity"].startswith("ok, but 6 of ")
    assert (
        "takes no settings, not 'dry'"
        in breakable.http.post("/admin/defragment", json={"dry": True}, headers=breakable.auth).json()["error"][
            "message"
        ]
    )
    answer = breakable.http.post("/admin/defragment", json={}, headers=breakable.auth).json()
    assert {item["owner"] for item in answer["reclaimed"]} == owners and len(answer["reclaimed"]) == 6
    assert answer["ledger"]["leaked"] == 0 and answer["moves"] >= 0
    assert breakable.admin("blocks")["integrity"] == "ok"
    assert breakable.metric("llm_kv_leaked_block_age_seconds") == 0


def test_memory_hog_is_resident_and_ends(breakable: Any) -> None:
    process = psutil.Process(breakable.process.pid)
    before = process.memory_info().rss
    switch(breakable, "memory_hog", bytes=200 * MIB)
    assert process.memory_info().rss - before > 190 * MIB
    switch(breakable, "memory_hog", active=False)
    assert process.memory_info().rss - before < 20 * MIB
    assert "cannot start" in switch(breakable, "memory_hog", status=409, bytes=2**40)["error"]["message"]
    assert not shown(breakable, "memory_hog")["active"]


def test_host_memory_leak_grows_until_it_ends(breakable: Any) -> None:
    process = psutil.Process(breakable.process.pid)
    before = process.memory_info().rss
    switch(breakable, "host_memory_leak", bytes_per_second=80 * MIB)
    until(lambda: process.memory_info().rss - before > 60 * MIB)
    switch(breakable, "host_memory_leak", active=False)
    assert process.memory_info().rss - before < 20 * MIB


def test_a_stall_is_visible_and_ends(breakable: Any, in_background: Any) -> None:
    switch(breakable, "stall")
    waiting = in_background(breakable.complete, "Hello", max_tokens=2)
    until(lambda: breakable.http.get("/health").status_code == 503)
    assert breakable.metric("llm_engine_ready") == 0
    switch(breakable, "stall", active=False)
    assert waiting.result()["usage"]["completion_tokens"] == 2
    until(lambda: breakable.http.get("/health").status_code == 200)


def test_slow_steps_are_that_much_slower(breakable: Any) -> None:
    switch(breakable, "slow_step", seconds=0.1)
    start = time.monotonic()
    breakable.complete("Hello", max_tokens=8, ignore_eos=True)
    assert time.monotonic() - start >= 0.8  # a lower bound holds on any machine


def test_busy_processes_come_and_go(breakable: Any) -> None:
    process = psutil.Process(breakable.process.pid)
    switch(breakable, "cpu_burn", processes=2)
    assert len(process.children()) == 2
    switch(breakable, "cpu_burn", processes=1)
    assert len(process.children()) == 1
    switch(breakable, "cpu_burn", active=False)
    assert process.children() == []


def test_dropped_prefixes_are_looked_up_in_vain(breakable: Any) -> None:
    def hit(prompt: str) -> int:
        breakable.complete(prompt, max_tokens=1)
        cached: int = breakable.complete(prompt, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached

    words = " ".join(f"word{i}" for i in range(20))
    assert hit(words) > 0
    switch(breakable, "drop_prefix_hits")
    assert hit(words + " again") == 0
    switch(breakable, "drop_prefix_hits", active=False)
    assert hit(words + " and again") > 0


def test_a_busy_front_end_is_late(breakable: Any) -> None:
    def lag() -> float:
        return breakable.metric("proc_event_loop_lag_seconds_sum", role="api")

    before = lag()
    switch(breakable, "busy_front_end", share=0.5, period_seconds=0.2)
    until(lambda: lag() - before > 0.5)
    switch(breakable, "busy_front_end", active=False)
    assert breakable.complete("Hello", max_tokens=1)["usage"]["completion_tokens"] == 1


def test_burning_processes_end_with_the_server(start_server: Any) -> None:
    server = start_server(
        *("--max-model-len", "64", "--kv-pool-tokens", "64", "--enable-faults"),
        *("--fault", "cpu_burn:processes=1", "--fault", "slow_step:seconds=0"),
    )
    active = {fault["name"]: fault["parameters"] for fault in server.admin("faults")["faults"] if fault["active"]}
    assert {name: parameter["value"] for both in active.values() for name, parameter in both.items()} == {
        "processes": 1,
        "seconds": 0.0,
    }
    (child,) = psutil.Process(server.process.pid).children()
    server.process.kill()
    server.process.wait(10)
    until(lambda: not child.is_running())
