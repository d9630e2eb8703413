"""infradoc.toml: what is read, and one clear sentence for everything that is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from infradoc.config import ConfigError, Permissions, find_config, load_config

GOOD = """\
[targets.prod]
url = "https://gpu1:8000"
host = false
log = "logs/server.log"

[targets.prod.auth]
api_key_env = "PROD_KEY"
ca_file = "ca.pem"
admin_token_file = "/run/token"

[targets.prod.permissions]
apply = true
knobs = ["max_num_seqs"]

[targets.lab]
url = "http://127.0.0.1:8000/metrics"
"""


def write(folder: Path, text: str) -> str:
    path = folder / "infradoc.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_reads_targets_with_paths_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    prod = config.targets["prod"]
    assert prod.url == "https://gpu1:8000" and prod.host is False
    assert prod.log == str(tmp_path / "logs/server.log")
    assert prod.auth.api_key_env == "PROD_KEY" and prod.auth.ca_file == str(tmp_path / "ca.pem")
    assert prod.auth.admin_token_file == "/run/token"
    assert prod.permissions == Permissions(apply=True, knobs=("max_num_seqs",))
    assert config.targets["lab"].permissions == Permissions()


@pytest.mark.parametrize(
    ("line", "gpu"),
    [("", None), ("gpu = true", True), ("gpu = false", False), ("gpu = [0, 3]", (0, 3))],
)
def test_which_gpus(tmp_path: Path, line: str, gpu: object) -> None:
    config = load_config(write(tmp_path, f'[targets.a]\nurl = "http://h:1"\n{line}\n'))
    assert config.targets["a"].gpu == gpu


@pytest.mark.parametrize("value", ["[]", "[-1]", "[true]", '["0"]', "1", '"all"'])
def test_gpus_that_are_none(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"infradoc.toml:3: targets.a.gpu: must be true, false or a list of GPU ind"):
        load_config(write(tmp_path, f'[targets.a]\nurl = "http://h:1"\ngpu = {value}\n'))


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ('[targets.a]\nulr = "http://h:1"\n', 2, ["targets.a.ulr", "unknown key", "`url`"]),
        ("[target.a]\n", 1, ["target", "unknown key", "`targets`"]),
        (
            '[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\napi_key = "abc"\n',
            4,
            ["not kept in this file", "api_key_env"],
        ),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\npassword = "abc"\n', 4, ["basic_password_env"]),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.permissions]\naply = true\n', 4, ["aply", "`apply`"]),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.permissions]\nknobs = "max_num_seqs"\n', 4, ["list of texts"]),
        ("[targets.a]\nurl = 5\n", 2, ["must be a text", "5"]),
        ('[targets.a]\nurl = "http://h:1"\nhost = "yes"\n', 3, ["true or false"]),
        ("[targets.a]\nhost = true\n", 1, ["needs a `url`"]),
        (
            '[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\nproxy = "http://u:pw@p:1"\n',
            4,
            ["password", "HTTPS_PROXY"],
        ),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\nclient_key_file = "k"\n', 4, ["client_cert_file"]),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\nproxy = "p:1"\n', 4, ["http:// or https://", "p:1"]),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\nproxy = "socks5://p:1"\n', 4, ["http:// or https://"]),
        ('[targets.a]\nlog = "a\\u0000b"\n', 2, ["targets.a.log", "NUL"]),
        ('[targets.a]\nurl = "http://h:1"\n[targets.a.auth]\nbearer_env = "a\\u0000b"\n', 4, ["NUL"]),
    ],
)
def test_says_what_is_wrong_and_where(tmp_path: Path, text: str, line: int, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    for part in parts:
        assert part in message
    assert "abc" not in message and "u:pw" not in message


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        load_config(write(tmp_path, "[targets.a]\nurl = \n"))


def test_no_text_at_all(tmp_path: Path) -> None:
    path = tmp_path / "infradoc.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(path))


def test_search_order(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config() is None and load_config().targets == {}
    user = clean_environment.parent / "config" / "infradoc"
    user.mkdir(parents=True)
    write(user, '[targets.user]\nurl = "http://h:1"\n')
    assert list(load_config().targets) == ["user"]
    write(clean_environment, '[targets.here]\nurl = "http://h:1"\n')
    assert list(load_config().targets) == ["here"]
    other = clean_environment.parent / "other.toml"
    other.write_text('[targets.env]\nurl = "http://h:1"\n')
    monkeypatch.setenv("INFRADOC_CONFIG", str(other))
    assert list(load_config().targets) == ["env"]


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*nope\.toml"):
        load_config(str(tmp_path / "nope.toml"))


def test_nested_too_deep(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(write(tmp_path, "a = " + "[" * 20_000))


def test_tables_of_other_parts_are_carried_as_they_are(tmp_path: Path) -> None:
    text = (
        GOOD
        + '[alerts]\nlang = "zh"\n[alerts.sinks.a]\nkind = "slack"\n[watch]\nperiod = "1s"\n[tui]\ntheme = "dark"\n'
    )
    config = load_config(write(tmp_path, text))
    assert config.alerts == {"lang": "zh", "sinks": {"a": {"kind": "slack"}}}
    assert config.watch == {"period": "1s"} and config.tui == {"theme": "dark"}
    assert config.folder == tmp_path


def test_a_part_names_the_line_of_its_fault_in_its_own_table(tmp_path: Path) -> None:
    text = '[alerts.sinks.a]\nurl = "x"\n[alerts.sinks.b]\nkind = "slack"\nurl = "y"\n'
    config = load_config(write(tmp_path, text))
    assert str(config.error_at("alerts.sinks.b.url", "is bad", "Mend it.")).endswith(
        "infradoc.toml:5: alerts.sinks.b.url: is bad. Mend it."
    )
    assert "infradoc.toml:3: alerts.sinks.b.key" in str(config.error_at("alerts.sinks.b.key", "is missing"))


@pytest.mark.parametrize("part", ["alerts", "watch", "tui"])
def test_a_part_that_is_no_table(tmp_path: Path, part: str) -> None:
    with pytest.raises(ConfigError, match=rf"infradoc.toml:1: {part}: must be a table"):
        load_config(write(tmp_path, f"{part} = 5\n"))


@pytest.mark.parametrize("line", ['host = "{}"', 'gpu = ["{}"]', 'log_command = "{}"'])
def test_a_value_of_any_length_leaves_the_sentence_readable(line: str, tmp_path: Path) -> None:
    path = tmp_path / "infradoc.toml"
    path.write_text('[targets.a]\nurl = "http://h"\n' + line.format("x" * 5000) + "\n")
    with pytest.raises(ConfigError, match=r"infradoc\.toml:3: targets\.a\.\w+: must be .* … x+") as caught:
        load_config(str(path))
    assert len(str(caught.value)) < 600 + len(str(path))
