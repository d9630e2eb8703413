"""From TARGET to sources, and one clear sentence for what is no target."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.config import Config, TargetConfig
from infradoc.errors import InfradocError
from infradoc.monitor.attach import attach, is_recording, target_config

CONFIG = Config(targets={"prod": TargetConfig(url="http://gpu1:8000", log="/l")}, path=Path("infradoc.toml"))


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("prod", "http://gpu1:8000"),
        ("http://h:1/metrics", "http://h:1/metrics"),
        ("https://h", "https://h"),
        ("localhost:8000", "http://localhost:8000"),
        ("10.0.0.1:8000/metrics", "http://10.0.0.1:8000/metrics"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_targets(spec: str, url: str) -> None:
    assert target_config(spec, CONFIG).url == url


def test_url_of_a_configured_server_takes_its_configuration() -> None:
    assert target_config("http://gpu1:8000/metrics", CONFIG).log == "/l"
    assert target_config("http://gpu1:8001", CONFIG).log == ""


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("prodd", "Did you mean 'prod'"),
        ("zzz", "infradoc.toml knows prod"),
        ("ftp://h:1", "no http:// or https://"),
        ("http://", "no usable host"),
        ("http://h:99999", "no usable URL"),
        ("http://h:0", "no usable host and port"),
        ("http://u:secret@h:1", "user name or password"),
        ("", "no target"),
    ],
)
def test_says_what_is_wrong(spec: str, part: str) -> None:
    with pytest.raises(InfradocError) as caught:
        target_config(spec, CONFIG)
    assert part in str(caught.value) and "secret" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_recordings_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod").mkdir()
    (tmp_path / "rec").mkdir()
    assert is_recording("rec", CONFIG) and is_recording("./nothing", CONFIG) and is_recording("x.tar.gz", CONFIG)
    assert not is_recording("prod", CONFIG) and not is_recording("http://h/x.tar.gz", CONFIG)
    assert not is_recording("h:8000", CONFIG)


def test_misspelt_engine_is_named_before_anything_is_asked() -> None:
    config = Config(targets={"prod": TargetConfig(url="http://gpu1:8000", system="vlm")})
    with pytest.raises(InfradocError, match=r"prod has system = 'vlm'.*Did you mean 'vllm'"):
        attach("prod", config)


def names(config: TargetConfig) -> list[str]:
    target = attach("t", Config(targets={"t": config}))
    try:
        return [source.name for source in target.sources]
    finally:
        target.close()


GPUS = ("nvml", "amdsmi")  # beside the host; silent where there is no such GPU


def test_bound_sources() -> None:
    assert names(TargetConfig(url="http://gpu1:8000")) == ["metrics", "admin"]
    assert names(TargetConfig(url="http://127.0.0.1:8000")) == ["launch", "metrics", "admin", "host", *GPUS]
    assert names(TargetConfig(url="http://127.0.0.1:8000", host=False)) == ["metrics", "admin"]
    everything = TargetConfig(url="http://gpu1:8000", host=True, client="/c", log="/l", launch="/x")
    assert names(everything) == ["launch", "metrics", "admin", "host", *GPUS, "client", "log"]
    assert names(TargetConfig(log="/l")) == ["log"]
