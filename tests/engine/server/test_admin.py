"""/admin: who may, versions and leases, and every live knob changed while requests run."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest


@pytest.mark.parametrize("path", ["/admin/config", "/admin/blocks", "/admin/requests", "/admin/faults"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", "Bearer"])
def test_no_or_wrong_token_is_401(server: Any, path: str, header: str | None) -> None:
    answer = server.http.get(path, headers={"authorization": header} if header else {})
    assert answer.status_code == 401
    assert "token" in answer.json()["error"]["message"]
    assert server.token_path.read_text().strip() not in answer.text


@pytest.mark.parametrize("path", ["/admin/drain", "/admin/defragment", "/admin/faults", "/admin/config"])
def test_nothing_changes_without_a_token(server: Any, path: str) -> None:
    method = "PATCH" if path.endswith("config") else "POST"
    answer = server.http.request(method, path, json={"name": "stall", "max_num_seqs": 1}, headers={"if-match": "*"})
    assert answer.status_code == 401
    assert server.metric("llm_engine_draining") == 0


@pytest.mark.parametrize("depth", [100, 900, 940, 960, 970, 980, 990, 100_00])
def test_nested_values_are_one_sentence(server: Any, depth: int) -> None:
    body = b'{"max_num_seqs": ' + b"[" * depth + b"]" * depth + b"}"
    answer = server.http.patch("/admin/config", content=body, headers={**server.auth, "if-match": "*"})
    assert answer.status_code in (400, 422) and len(answer.json()["error"]["message"]) < 200


def test_token_file_is_private(server: Any) -> None:
    assert server.token_path.stat().st_mode & 0o777 == 0o600


def test_config_shows_value_origin_bounds_and_hints(server: Any) -> None:
    config = server.admin("config")
    assert config["engine"] == "infradoc"
    knob = config["knobs"]["max_model_len"]
    assert knob == {
        "value": 512,
        "origin": "flag",
        "bounds": [2, 2147483647],
        "change": "drain",
        "flag": "--max-model-len",
    }
    assert config["hints"]["kv_bytes_per_token"] == 46080
    assert config["hints"]["torch_threads"] == 1
    assert config["hints"]["cores"] >= 1
    assert config["hints"]["free_memory_bytes"] > 0
    assert config["hints"]["weight_bytes"] > 500 << 20
    assert 1 << 20 < config["hints"]["activation_bytes"] < 500 << 20
    assert config["hints"]["device_memory_bytes"] > config["hints"]["weight_bytes"]
    assert config["hints"]["host_swap_bytes"] == 0


def test_version_guards_against_lost_updates(server: Any) -> None:
    version = server.admin("config")["version"]
    other = 0.25 if server.admin("config")["knobs"]["watermark"]["value"] != 0.25 else 0.2
    changed = server.patch(version, watermark=other)
    assert changed.status_code == 200 and changed.json()["version"] == version + 1
    assert changed.json()["knobs"]["watermark"] == {
        "value": other,
        "origin": "api",
        "bounds": [0.0, 0.9],
        "change": "live",
        "flag": "--watermark",
    }
    stale = server.patch(version, watermark=0.0)
    assert stale.status_code == 412 and str(version + 1) in stale.json()["error"]["message"]
    missing = server.http.patch("/admin/config", json={"watermark": 0.0}, headers=server.auth)
    assert missing.status_code == 428
    assert server.admin("config")["knobs"]["watermark"]["value"] == other
    assert server.set(watermark=0.0)["version"] == version + 2


def test_lease_keeps_other_writers_out(server: Any) -> None:
    mine = server.patch(headers={"x-infradoc-lease": "doctor;30"})
    assert mine.status_code == 200 and mine.json()["lease"]["holder"] == "doctor"
    for headers in ({}, {"x-infradoc-lease": "other;30"}):
        refused = server.patch(headers=headers, watermark=0.5)
        assert refused.status_code == 423 and "doctor" in refused.json()["error"]["message"]
    assert server.patch(headers={"x-infradoc-lease": "doctor;0"}, watermark=0.0).status_code == 200
    assert server.admin("config")["lease"] is None
    assert server.patch(headers={"x-infradoc-lease": "nonsense"}).status_code == 422


@pytest.mark.parametrize(
    ("knobs", "status", "says"),
    [
        ({"max_num_seq": 4}, 422, "max_num_seqs"),
        ({"max_num_seqs": 0}, 422, "1 to 1024"),
        ({"max_num_seqs": "8"}, 422, "whole number"),
        ({"max_num_seqs": True}, 422, "whole number"),
        ({"watermark": 1.5}, 422, "0.0 to 0.9"),
        ({"truncation_policy": "centre"}, 422, "middle"),
        ({"prefix_caching": "yes"}, 422, "true or false"),
        ({"max_model_len": 9000}, 422, "use at most --max-model-len 8192"),
        ({"max_model_len": 5000}, 409, "--kv-pool-tokens 5008"),
        ({"gpu_memory_utilization": 0.02}, 409, "The lowest gpu_memory_utilization that fits is"),
        ({"preemption_mode": "drop"}, 422, "recompute, swap"),
        ({"activation_profile": "trust"}, 409, "restart"),
        ({"max_model_len": None}, 409, "restart without --max-model-len"),
        ({"omp_num_threads": 2}, 409, "restart"),
        ({"swap_space": 2**42}, 409, "of host memory are available; at most --swap-space"),
        ({"kv_pool_tokens": 64}, 409, "one request of max_model_len 512 needs 512 tokens"),
    ],
)
def test_refused_changes_change_nothing(server: Any, knobs: dict[str, Any], status: int, says: str) -> None:
    before = server.admin("config")
    answer = server.patch(**knobs, max_queued_requests=77)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]["message"]
    after = server.admin("config")
    assert after["knobs"] == before["knobs"] and after["version"] == before["version"]


def test_each_live_knob_changes_under_load(server: Any, in_background: Any) -> None:
    stop = threading.Event()
    prompts = [f"Question {i}: what is {i} plus {i}? Answer:" for i in range(4)]
    expected = [server.complete(prompt, max_tokens=12, ignore_eos=True)["choices"][0]["text"] for prompt in prompts]

    def client(index: int) -> int:
        rounds = 0
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while not stop.is_set():
                body = {"prompt": prompts[index], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
                answer = http.post("/v1/completions", json=body)
                assert answer.status_code == 200, answer.text
                assert answer.json()["choices"][0]["text"] == expected[index]
                rounds += 1
        return rounds

    clients = [in_background(client, index) for index in range(4)]
    original = {name: knob["value"] for name, knob in server.admin("config")["knobs"].items()}
    try:
        for name, value in (
            ("max_num_seqs", 2),
            ("max_num_batched_tokens", 16),
            ("watermark", 0.2),
            ("chunked_prefill", False),
            ("prefix_caching", False),
            ("tokenizer_workers", 1),
            ("truncation_policy", "middle"),
            ("max_queued_requests", 100),
            ("preemption_mode", "swap"),
            ("swap_space", 8 << 20),
            ("enforce_eager", True),
        ):
            shown = server.set(**{name: value})["knobs"][name]
            assert shown["value"] == value and shown["origin"] == "api"
            running = server.metric("llm_requests_running")
            assert name != "max_num_seqs" or running <= 4
        metrics = server.metrics()
        assert metrics["config_value", (("knob", "max_num_seqs"), ("origin", "api"))] == 2
        labels = (("knob", "truncation_policy"), ("origin", "api"), ("value", "middle"))
        assert metrics["config_info", labels] == 1
    finally:
        live = ("max_num_seqs", "max_num_batched_tokens", "watermark", "chunked_prefill", "prefix_caching")
        server.set(
            **{name: original[name] for name in live},
            tokenizer_workers=0,
            truncation_policy="reject",
            max_queued_requests=None,
            preemption_mode="recompute",
            swap_space=0,
            enforce_eager=False,
        )
        stop.set()
    assert all(future.result() > 0 for future in clients)
    assert server.admin("blocks")["integrity"] == "ok"


def test_blocks_name_their_holders_and_ages_as_of_one_moment(server: Any, in_background: Any) -> None:
    running = [in_background(server.complete, f"Tale {i}", max_tokens=60, ignore_eos=True) for i in range(3)]
    seen: dict[str, float] = {}  # request -> age of its oldest block
    grew = False
    while not all(future.done() for future in running):
        blocks = server.admin("blocks")
        assert blocks["owners_step"] == 1
        states = [state for state, length in blocks["runs"] for _ in range(length)]
        owners = [(owner, age) for owner, age, length in blocks["owners"] for _ in range(length)]
        assert len(states) == len(owners) == blocks["num_blocks"]
        for state, (owner, age) in zip(states, owners, strict=True):
            assert (owner is not None) == (age is not None) == (state in ("live", "shared"))
            assert age is None or 0 <= age < 600
            assert state != "live" or str(owner).startswith("req-")
        oldest: dict[str, float] = {}
        for owner, age in owners:
            if owner is not None and owner.startswith("req-"):
                oldest[owner] = max(age, oldest.get(owner, 0.0))
        assert all(oldest.get(owner, before) >= before for owner, before in seen.items())
        grew = grew or any(oldest.get(owner, 0.0) > before for owner, before in seen.items())
        seen |= oldest
    assert len(seen) == 3 and grew


def test_full_queue_is_429(server: Any, in_background: Any) -> None:
    server.set(max_num_seqs=1, max_queued_requests=0)
    try:
        running = in_background(server.complete, "Once upon a time", max_tokens=60, ignore_eos=True)
        while not server.metric("llm_requests_running"):
            pass
        answer = server.http.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 1})
        assert answer.status_code == 429 and answer.json()["error"]["code"] == "queue_full"
        assert answer.headers["retry-after"] == "1"
        assert running.result()["usage"]["completion_tokens"] == 60
    finally:
        server.set(max_num_seqs=8, max_queued_requests=None)
    assert server.metric("llm_requests_rejected_total", reason="queue_full") >= 1


def test_admin_answers_on_a_kept_alive_connection_of_the_other_loop(server: Any) -> None:
    with httpx.Client(base_url=server.url) as http:
        assert http.post("/tokenize", json={"prompt": "a"}).status_code == 200
        assert http.get("/admin/config", headers=server.auth).status_code == 200
        patch = http.patch("/admin/config", json={"watermark": 0.0}, headers={**server.auth, "if-match": "*"})
        assert patch.status_code == 200
        assert http.get("/metrics").status_code == 200
