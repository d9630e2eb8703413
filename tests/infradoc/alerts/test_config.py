"""`[alerts]` of infradoc.toml: what is read, and one clear sentence for everything that is wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.alerts.backoff import Limit
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.sinks.all import SINKS, make_sink
from infradoc.config import ConfigError

Write = Callable[[str], AlertsConfig]
GOOD = """\
[alerts]
state = "run"
lang = "zh"
group_by = "finding"
group_wait = "5s"
repeat_interval = "1d"
critical_inhibits_warning = true
keep = "2d"

[alerts.sinks.ops]
kind = "webhook"
url = "https://hooks.example.com/x"
secret_env = ["NEW", "OLD"]
severity = "warning"
match = ["target=~prod-.*", "finding!=idle"]
send_resolved = false
timeout = "3s"
give_up = "2h"
rate = "30/min"

[alerts.sinks.chat]
kind = "feishu"
lang = "en"
url_file = "feishu.url"
secret_file = "feishu.secret"
"""


def test_a_whole_configuration(write_config: Write, tmp_path: Path) -> None:
    config = write_config(GOOD)
    assert config.state == str(tmp_path / "run") and config.group_by == "finding" and config.keep == 172_800
    assert config.timing.group_wait == 5 and config.timing.repeat_interval == 86_400
    assert config.timing.group_interval == 300 and config.critical_inhibits_warning
    ops, chat = config.sinks["ops"], config.sinks["chat"]
    assert ops.secret_env == ("NEW", "OLD") and ops.rate == (Limit(30, 60.0),) and not ops.send_resolved
    assert [str(matcher) for matcher in ops.match] == ["target=~prod-.*", "finding!=idle"]
    assert (ops.timeout, ops.give_up, ops.severity, ops.lang) == (3.0, 7200.0, "warning", "zh")
    assert chat.url_file == str(tmp_path / "feishu.url") and chat.secret_file == (str(tmp_path / "feishu.secret"),)


def test_no_configuration_is_one_without_sinks(write_config: Write) -> None:
    assert write_config("") == AlertsConfig()


def test_every_kind_has_its_sink(write_config: Write) -> None:
    for kind in SINKS:
        key = 'key_env = "K"\n' if kind == "pagerduty" else ""
        config = write_config(f'[alerts.sinks.a]\nkind = "{kind}"\nurl_env = "U"\n{key}')
        assert make_sink(config.sinks["a"]).kind == kind


SINK = '[alerts.sinks.a]\nkind = "webhook"\nurl = "https://h/x"\n'


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("[alerts]\ngroup_wiat = '1s'\n", 2, ["unknown key", "`group_wait`"]),
        ("[alerts]\ngroup_wait = [5]\n", 2, ["'[5]' is no duration from 0s to 366d", "write for example 500ms"]),
        ("[alerts]\ngroup_wait = true\n", 2, ["no duration"]),
        ("[alerts]\ngroup_wait = '5 weeks'\n", 2, ["no duration"]),
        ("[alerts]\ngroup_interval = '0s'\n", 2, ["no duration from 1s"]),
        ("[alerts]\nkeep = '9999d'\n", 2, ["to 366d"]),
        ("[alerts]\nlang = 'fr'\n", 2, ["en, zh"]),
        ("[alerts]\ngroup_by = 'targets'\n", 2, ["'target'"]),
        ("[alerts]\ncritical_inhibits_warning = 1\n", 2, ["true or false"]),
        ("[alerts]\nsinks = 3\n", 2, ["a table of sinks"]),
        ("[alerts]\nstate = 3\n", 2, ["a text"]),
        ("[alerts.sinks]\na = 3\n", 2, ["must be a table"]),
        ('[alerts.sinks."a b"]\nkind = "slack"\n', 1, ["a sink's name"]),
        ("[alerts.sinks.a]\nurl = 'https://h'\n", 1, ["needs a `kind`", "pagerduty"]),
        ("[alerts.sinks.a]\nkind = 'slak'\n", 2, ["'slack'"]),
        ("[alerts.sinks.a]\nkind = 'webhook'\n", 1, ["needs `url`, `url_env` or `url_file`"]),
        ("[alerts.sinks.a]\nkind = 'slack'\n", 1, ["needs `url_env` or `url_file`"]),
        ("[alerts.sinks.a]\nkind = 'slack'\nurl = 'https://hooks.slack.com/x'\n", 3, ["holds its key", "url_env"]),
        ("[alerts.sinks.a]\nkind = 'pagerduty'\n", 1, ["`key_env` or `key_file`"]),
        ("[alerts.sinks.a]\nkind = 'pagerduty'\nrouting_key = 'x'\n", 3, ["not kept in this file", "key_env"]),
        (SINK + "secret = 'x'\n", 4, ["not kept in this file", "secret_env"]),
        (SINK + "bearer = 'x'\n", 4, ["bearer_env"]),
        (SINK + "url_env = 'x'\n", 4, ["one of them is enough"]),
        ("[alerts.sinks.a]\nkind = 'webhook'\nurl = 'ftp://h'\n", 3, ["http:// or https://"]),
        ("[alerts.sinks.a]\nkind = 'webhook'\nurl = 'http://h:x/'\n", 3, ["http:// or https://"]),
        ("[alerts.sinks.a]\nkind = 'webhook'\nurl = 'https://u:p@h/'\n", 3, ["holds a secret", "url_env"]),
        ("[alerts.sinks.a]\nkind = 'webhook'\nurl = 'https://h/?token=1'\n", 3, ["holds a secret"]),
        (SINK + "proxy = 'http://u:p@h:1'\n", 4, ["without a password"]),
        (SINK + "proxy = 'socks5://h:1'\n", 4, ["http:// or https://"]),
        (SINK + "basic_user = 'u'\n", 4, ["basic_password_env"]),
        (SINK + "timeout = '10m'\n", 4, ["from 100ms to 2m"]),
        (SINK + "severity = 'bad'\n", 4, ["info, warning, critical"]),
        (SINK + "match = ['host=x']\n", 4, ["'host' is no label", "target, finding, severity"]),
        (SINK + "match = ['target=~(']\n", 4, ["no pattern that RE2 takes"]),
        (SINK + "match = [3]\n", 4, ["a list of texts"]),
        (SINK + "rate = '5'\n", 4, ['"20/min"']),
        (SINK + "rate = '0/s'\n", 4, ['"20/min"']),
        (SINK + "concurrency = 1000\n", 4, ["1 to 64"]),
        (SINK + "allow_private = 'yes'\n", 4, ["true or false"]),
        (SINK + "ca_file = 'a\\nb'\nlang = 5\n", 5, ["en, zh"]),
    ],
)
def test_faults_name_file_line_key_and_the_way_out(
    write_config: Write, tmp_path: Path, text: str, line: int, parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        write_config(text)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'infradoc.toml'}:{line}: alerts"), told
    assert all(part in told for part in parts), told
