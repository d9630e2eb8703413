"""The admin source against a real server: token, facts, hints, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Auth, Config, TargetConfig
from infradoc.monitor.attach import attach
from infradoc.sources.admin import AdminSource
from infradoc.sources.credentials import SecretError, admin_token

CONFIG = {
    "version": 3,
    "engine": "infradoc",
    "engine_version": "0.1.0",
    "lease": None,
    "knobs": {
        "max_num_seqs": {
            "value": 16,
            "origin": "flag",
            "bounds": [1, 1024],
            "change": "live",
            "flag": "--max-num-seqs",
        },
        "truncation_policy": {"value": "reject", "origin": "default", "bounds": ["reject", "left"], "change": "live"},
        "device_memory_bytes": {"value": None, "origin": "default"},
    },
    "hints": {"kv_bytes_per_token": 46080, "cores": 2},
}
BLOCKS = {"ledger": {"free": 1}, "num_blocks": 1, "integrity": "ok"}


@pytest.fixture
def engine(server: Any, clean_environment: Path) -> Any:
    server.page("/admin/config", json.dumps(CONFIG).encode(), kind="application/json")
    server.page("/admin/blocks", json.dumps(BLOCKS).encode(), kind="application/json")
    return server


def test_knobs_and_hints_become_facts(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    source = AdminSource(engine.url)
    assert source.is_supported()
    reading = source.read(1.0)
    assert reading.error is None and reading.events == []
    facts = {fact.name: (fact.value, fact.origin) for fact in reading.facts}
    assert facts["max_num_seqs"] == (16, "flag") and facts["truncation_policy"] == ("reject", "default")
    assert facts["hint.kv_bytes_per_token"] == (46080, "api") and facts["target.version"] == ("0.1.0", "api")
    assert "device_memory_bytes" not in facts
    assert all(headers["Authorization"] == "Bearer tok" for _, headers in engine.requests)


def test_the_oldest_leaked_block_names_its_owner(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    rows = [
        {"block": 3, "owner": "a", "age_seconds": 2.0},
        {"block": 4, "owner": "b", "age_seconds": 9.04},
        {"block": 5, "owner": None},
        "junk",
    ]
    engine.page("/admin/blocks", json.dumps({**BLOCKS, "leaked": rows}).encode())
    facts = {fact.name: fact.value for fact in AdminSource(engine.url).read(1.0).facts}
    assert (facts["kv.leaked_owner"], facts["kv.leaked_age_seconds"]) == ("b", 9.0)


def test_ledger_that_does_not_add_up_is_an_event(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    engine.page("/admin/blocks", json.dumps({**BLOCKS, "integrity": "block 3 is free and live"}).encode())
    (event,) = AdminSource(engine.url).read(1.0).events
    assert event.name == "kv_check_failed" and event.text == "block 3 is free and live"


def test_token_is_found_in_order(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not AdminSource(engine.url).is_supported()
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / f"engine-{engine.port}.token").write_text("from-file\n")
    assert AdminSource(engine.url).token() == "from-file"
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "from-env")
    assert AdminSource(engine.url).token() == "from-env"
    monkeypatch.setenv("OTHER", "configured")
    assert AdminSource(engine.url, Auth(admin_token_env="OTHER")).token() == "configured"


def test_token_files_of_this_machine_are_for_its_own_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFRADOC_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv("INFRADOC_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "engine-8000.token").write_text("tok\n")
    assert AdminSource("http://127.0.0.1:8000").token() == "tok"
    assert AdminSource("http://elsewhere.example:8000").token() is None


def test_configured_token_that_is_missing(engine: Any) -> None:
    with pytest.raises(SecretError, match="NOT_THERE"):
        admin_token(Auth(admin_token_env="NOT_THERE"), 1)
    source = AdminSource(engine.url, Auth(admin_token_env="NOT_THERE"))
    assert source.is_supported() and "NOT_THERE" in str(source.read(1.0).error)


@pytest.mark.parametrize(("status", "word"), [(401, "refuses the admin token"), (404, "404"), (500, "500")])
def test_refusals(engine: Any, monkeypatch: pytest.MonkeyPatch, status: int, word: str) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    engine.page("/admin/config", b"{}", status=status)
    error = AdminSource(engine.url).read(1.0).error
    assert error is not None and word in error and "tok " not in error.replace("token", "")


def test_asks_only_the_bundled_engine(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    assert not AdminSource(engine.url, wanted=lambda: False).is_supported()


def test_the_environment_s_token_goes_only_where_the_user_said(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody's page may look like the bundled engine's."""
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    url = "http://elsewhere.example:8000"
    stranger = AdminSource(url)
    assert stranger.token() is None and not stranger.is_supported()
    assert "INFRADOC_ADMIN_TOKEN is sent only to this machine" in str(stranger.why_not())
    assert AdminSource(url, wanted=lambda: False).why_not() is None
    named = AdminSource(url, asked=True)
    assert named.token() == "tok" and named.why_not() is None
    for local in ("http://127.0.0.1:8000", "http://localhost", "http://[::1]:9"):
        assert AdminSource(local).token() == "tok"
    monkeypatch.delenv("INFRADOC_ADMIN_TOKEN")
    assert AdminSource(url).why_not() is None  # there is none to be sent


def test_a_target_of_the_configuration_is_named(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRADOC_ADMIN_TOKEN", "tok")
    config = Config({"prod": TargetConfig(url="http://elsewhere.example:8000")})
    found = {}
    for spec in ("prod", "http://elsewhere.example:8000/metrics", "http://stranger.example:8000"):
        target = attach(spec, config)
        (source,) = [one for one in target.sources if isinstance(one, AdminSource)]
        found[spec] = source.token()
        target.close()
    assert list(found.values()) == ["tok", "tok", None]
