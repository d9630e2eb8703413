"""Each sink against a real receiver: what it is sent, checked from the services' own documents, and what it answers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
from standardwebhooks.webhooks import Webhook

import infradoc.alerts
from infradoc.alerts.attempt import attempt
from infradoc.alerts.config import AlertsConfig
from infradoc.alerts.message import change_message, trial_message
from infradoc.alerts.post import Poster
from infradoc.alerts.sinks.all import SINKS, make_sink
from infradoc.alerts.sinks.base import Outcome

Finding = dict[str, Any]
Make = Callable[..., dict[str, Any]]
NASTY = "<!channel> *x* [click](http://evil) `cmd` <@U1> & \x1b[2J\u202e"
LONG = "很长的一句话，" * 4000


@pytest.fixture
def send(write_config: Callable[[str], AlertsConfig], receiver: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Send a message through a sink of this kind to the receiver; (outcome, path, headers, body as JSON)."""

    def go(kind: str, message: dict[str, Any], *lines: str, path: str = "/hook?key=SECRETKEY") -> Any:
        monkeypatch.setenv("SINK_URL", f"{receiver.url}{path}")
        text = f'[alerts.sinks.s]\nkind = "{kind}"\nurl_env = "SINK_URL"\nallow_private = true\n' + "\n".join(lines)
        sink = make_sink(write_config(text).sinks["s"])

        async def deliver() -> Outcome:
            poster = Poster(sink.config)
            try:
                return await attempt(sink, poster, message, time.time())
            finally:
                await poster.close()

        outcome = asyncio.run(deliver())
        if not receiver.got:
            return outcome, "", {}, None
        where, headers, body = receiver.got[-1]
        return outcome, where, headers, json.loads(body)

    return go


def texts_in(value: Any) -> str:
    """All texts of a body, one after the other."""
    if isinstance(value, dict):
        return "\n".join(texts_in(item) for item in value.values())
    if isinstance(value, list):
        return "\n".join(texts_in(item) for item in value)
    return str(value)


TAKEN = {"slack": b"ok", "feishu": b'{"code":0}', "dingtalk": b'{"errcode":0}', "wecom": b'{"errcode":0}'}


@pytest.mark.parametrize("kind", [kind for kind in SINKS if kind != "apprise"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_everything_that_a_reader_at_night_needs(
    send: Any, receiver: Any, finding: Callable[..., Finding], chinese: Any, message: Make, kind: str, lang: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("KEY", "routing-key")
    receiver.answers(200, TAKEN.get(kind, b""))
    leaf = finding("queue-saturation")
    told = message(finding(explains=["queue-saturation"]), leaf, zh=chinese)
    key = ('key_env = "KEY"',) if kind == "pagerduty" else ()
    outcome, _, _, body = send(kind, told, f'lang = "{lang}"', *key, path="")
    assert outcome.fate == "delivered", outcome
    said = texts_in(body)
    expected = {
        "en": ("Title of kv-thrashing-preemption", "The pool holds fewer blocks", "Preemptions go on"),
        "zh": ("运行中的请求反复失去", "KV 块不够用。", "减半后仍抢占。"),
    }
    common = ("prod", "--max-num-seqs 32", "Fewer requests run at once", "KV usage 0.98", "kv-thrashing-preemption")
    incident = told["incidents"][0]["id"]
    for part in (*expected[lang], *common, incident):
        assert part in said, (part, said)


@pytest.mark.parametrize("kind", ["slack", "feishu", "dingtalk", "wecom"])
def test_markup_and_control_characters_are_shown_and_never_interpreted(
    send: Any, receiver: Any, finding: Callable[..., Finding], message: Make, kind: str
) -> None:
    receiver.answers(200, TAKEN[kind])
    told = message(finding(title=NASTY, cause=NASTY), target=f"m/{NASTY}", system=NASTY)
    outcome, _, _, body = send(kind, told)
    assert outcome.fate == "delivered"
    said = texts_in(body)
    assert "\x1b" not in said and "\u202e" not in said
    assert "\\x1b[2J\\u202e" in said.replace("［", "[")
    if kind == "slack":
        assert "<" not in said and "&lt;!channel&gt;" in said
        assert {text["type"] for block in body["blocks"] for text in [block["text"]]} == {"plain_text"}
    if kind == "feishu":
        assert {e["text"]["tag"] for e in body["card"]["elements"]} == {"plain_text"}
    if kind == "dingtalk":
        assert body["msgtype"] == "text" and "at" not in body
    if kind == "wecom":
        inner = re.sub(r"</?font[^>]*>|\*\*", "", body["markdown"]["content"])
        assert not set("<>[]`*") & set(inner)


@pytest.mark.parametrize(("kind", "most"), [("feishu", 20_480), ("dingtalk", 20_000), ("wecom", 4096), ("slack", 0)])
def test_size_limits_cut_between_characters_with_a_mark(
    send: Any, receiver: Any, finding: Callable[..., Finding], message: Make, kind: str, most: int
) -> None:
    receiver.answers(200, TAKEN[kind])
    many = [finding(f"f-{number}", cause=LONG, falsifier=LONG, title='"\\' * 200) for number in range(60)]
    outcome, _, _, body = send(kind, message(*many))
    assert outcome.fate == "delivered"
    if kind == "slack":
        assert len(body["blocks"]) <= 50 and len(body["blocks"][0]["text"]["text"]) <= 150
        assert all(len(block["text"]["text"]) <= 3000 for block in body["blocks"])
        return
    size = len(body["markdown"]["content"].encode()) if kind == "wecom" else len(receiver.got[-1][2])
    assert most * 0.9 < size <= most
    text = {
        "feishu": lambda: body["card"]["elements"][0]["text"]["content"],
        "dingtalk": lambda: body["text"]["content"],
        "wecom": lambda: body["markdown"]["content"],
    }[kind]()
    assert text.endswith("…") and "\ufffd" not in text


def test_standard_webhooks_signs_with_every_secret(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = b"0123456789abcdef01234567", b"fedcba9876543210fedcba98"
    monkeypatch.setenv("OLD", "whsec_" + base64.b64encode(old).decode())
    monkeypatch.setenv("NEW", "whsec_" + base64.b64encode(new).decode())
    told = message()
    outcome, _, headers, body = send("webhook", told, 'secret_env = ["NEW", "OLD"]')
    assert outcome.fate == "delivered" and headers["webhook-id"] == told["id"] == body["data"]["id"]
    raw = receiver.got[-1][2]
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
    want = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in (new, old)]
    assert headers["webhook-signature"] == f"v1,{want[0]} v1,{want[1]}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    for key in (old, new):
        assert Webhook(key).verify(raw, headers) == body  # the library that receivers use


def test_a_secret_that_is_none_is_told_without_being_shown(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD", "not base64 at all!")
    outcome, *_ = send("webhook", message(), 'secret_env = "BAD"')
    assert outcome.fate == "retry" and "none of Standard Webhooks" in outcome.text
    assert "not base64" not in outcome.text and receiver.got == []


def test_feishu_signature(send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """base64(HMAC-SHA256(key = timestamp + newline + secret, message empty)), the timestamp in seconds."""
    receiver.answers(200, b'{"code":0,"msg":"success","data":{}}')
    monkeypatch.setenv("SIGN", "feishu-secret")
    outcome, _, _, body = send("feishu", message(), 'secret_env = "SIGN"')
    assert outcome.fate == "delivered" and abs(int(body["timestamp"]) - time.time()) < 60
    digest = hmac.new(f"{body['timestamp']}\nfeishu-secret".encode(), digestmod=hashlib.sha256).digest()
    assert body["sign"] == base64.b64encode(digest).decode()


def test_dingtalk_signature(send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """base64(HMAC-SHA256(key = secret, message = timestamp + newline + secret)) in the query, in milliseconds."""
    receiver.answers(200, b'{"errcode":0,"errmsg":"ok"}')
    monkeypatch.setenv("SIGN", "SECsecret")
    outcome, where, _, _ = send("dingtalk", message(), 'secret_env = "SIGN"', path="/robot/send?access_token=T")
    query = {key: values[0] for key, values in parse_qs(urlsplit(where).query, strict_parsing=True).items()}
    assert outcome.fate == "delivered" and query["access_token"] == "T"
    assert abs(int(query["timestamp"]) / 1000 - time.time()) < 60 and len(query["timestamp"]) == 13
    digest = hmac.new(b"SECsecret", f"{query['timestamp']}\nSECsecret".encode(), hashlib.sha256).digest()
    assert query["sign"] == base64.b64encode(digest).decode()


def test_pagerduty_triggers_resolves_and_tells_changes(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers(202, b'{"status":"success","message":"Event processed","dedup_key":"x"}')
    monkeypatch.setenv("KEY", "R0UTINGKEY")
    outcome, where, _, body = send("pagerduty", message(), 'key_env = "KEY"', path="")
    assert outcome.fate == "delivered" and where == "/v2/enqueue"
    assert (body["event_action"], body["routing_key"], body["payload"]["severity"]) == (
        "trigger", "R0UTINGKEY", "warning",
    )  # fmt: skip
    assert {"summary", "source", "severity", "timestamp", "custom_details"} <= set(body["payload"])
    key = body["dedup_key"]
    _, where, _, body = send("pagerduty", message(ends=True), 'key_env = "KEY"', path="")
    assert body["event_action"] == "resolve" and body["dedup_key"] == key and len(key) <= 255
    change = change_message(time.time(), "prod", {"knob": "max_num_seqs", "old": 64, "new": 32, "verdict": "fixed"})
    _, where, _, body = send("pagerduty", change, 'key_env = "KEY"', path="")
    assert where == "/v2/change/enqueue" and body["payload"]["summary"] == "prod: max_num_seqs: 64 → 32"
    assert body["payload"]["custom_details"]["verdict"] == "fixed"


@pytest.mark.parametrize("path", ["", "/", "/v2/enqueue", "/v2/enqueue/", "/v2/change/enqueue"])
def test_pagerduty_takes_the_address_of_its_documents(
    write_config: Callable[[str], Any], message: Make, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("KEY", "k" * 32)
    url = f"https://events.eu.pagerduty.com{path}"
    config = write_config(f'[alerts.sinks.a]\nkind = "pagerduty"\nurl = "{url}"\nkey_env = "KEY"\n')
    request = make_sink(config.sinks["a"]).request(message(), 1.0)
    assert request.url == "https://events.eu.pagerduty.com/v2/enqueue"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://am:9093", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/api/v2", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/api/v2/alerts", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/api/v2/alerts//", "http://am:9093/api/v2/alerts"),
        ("http://am:9093/api/v1/alerts", "http://am:9093/api/v2/alerts"),
        ("http://proxy/alertmanager/api/v2/alerts?team=x", "http://proxy/alertmanager/api/v2/alerts?team=x"),
        ("http://proxy/api", "http://proxy/api/api/v2/alerts"),
    ],
)
def test_alertmanager_takes_its_base_address_and_the_whole_one(
    write_config: Callable[[str], Any], message: Make, url: str, sent: str
) -> None:
    config = write_config(f'[alerts.sinks.a]\nkind = "alertmanager"\nurl = "{url}"\n')
    assert make_sink(config.sinks["a"]).request(message(), 1.0).url == sent


@pytest.mark.parametrize("kind", [kind for kind in SINKS if kind not in ("apprise", "pagerduty", "alertmanager")])
def test_no_other_sink_adds_a_path_to_its_address(
    kind: str, write_config: Callable[[str], Any], message: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_URL", "https://example.com/a/b/")
    config = write_config(f'[alerts.sinks.a]\nkind = "{kind}"\nurl_env = "SINK_URL"\n')
    assert make_sink(config.sinks["a"]).request(message(), 1.0).url == "https://example.com/a/b/"


CLOUD_EVENT = {
    "type": "object",
    "required": ["specversion", "id", "source", "type", "time", "datacontenttype", "data"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "pattern": "^urn:infradoc:target:[A-Za-z0-9%._~-]+$"},
        "type": {"type": "string", "pattern": "^[a-z.]+$"},
        "subject": {"type": "string"},
        "sequence": {"type": "string", "pattern": "^[0-9]+$"},
        "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
        "datacontenttype": {"const": "application/json"},
        "data": {"type": "object"},
    },
    "patternProperties": {"^[a-z0-9]+$": {}},
    "additionalProperties": False,
}


def test_cloudevents_are_structured_json(send: Any, message: Make) -> None:
    for told, kind in (
        (message(target="a b/c"), "infradoc.incident.firing"),
        (message(ends=True), "infradoc.incident.resolved"),
        (change_message(1.0, "prod", {"summary": "s"}), "infradoc.change.applied"),
        (trial_message(1.0, "n"), "infradoc.test"),
    ):
        outcome, _, headers, body = send("cloudevents", told)
        assert outcome.fate == "delivered" and body["type"] == kind and body["id"] == told["id"]
        assert headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
        jsonschema.validate(body, CLOUD_EVENT)


def plain(most: int) -> dict[str, Any]:
    """Slack's plain text object."""
    properties = {
        "type": {"const": "plain_text"},
        "text": {"type": "string", "minLength": 1, "maxLength": most},
        "emoji": {"type": "boolean"},
    }
    return {"type": "object", "required": ["type", "text"], "additionalProperties": False, "properties": properties}


def closed(**properties: Any) -> dict[str, Any]:
    """An object with these members and no others."""
    names = list(properties)
    return {"type": "object", "required": names, "additionalProperties": False, "properties": properties}


TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": TEXT}
STAMP = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
LARK_TEXT = closed(tag={"const": "plain_text"}, content=TEXT)
SCHEMAS: dict[str, Any] = {
    "slack": closed(
        text=TEXT,
        mrkdwn={"const": False},
        blocks={
            "type": "array",
            "maxItems": 50,
            "prefixItems": [closed(type={"const": "header"}, text=plain(150))],
            "items": closed(type={"const": "section"}, text=plain(3000)),
        },
    ),
    "feishu": closed(
        msg_type={"const": "interactive"},
        card=closed(
            header=closed(title=LARK_TEXT, template={"enum": ["red", "orange", "blue", "green"]}),
            elements={"type": "array", "items": closed(tag={"const": "div"}, text=LARK_TEXT)},
        ),
    ),
    "dingtalk": closed(msgtype={"const": "text"}, text=closed(content=TEXT)),
    "wecom": closed(msgtype={"const": "markdown"}, markdown=closed(content=TEXT)),
    "alertmanager": {
        "type": "array",
        "minItems": 1,
        "items": closed(labels=TEXTS, annotations=TEXTS, startsAt=STAMP, endsAt=STAMP),
    },
    "webhook": json.loads((Path(infradoc.alerts.__file__).parent / "notification.schema.json").read_text()),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_bodies_have_the_shape_of_their_service(
    send: Any, receiver: Any, finding: Any, message: Make, chinese: Any, kind: str
) -> None:
    receiver.answers(200, TAKEN.get(kind, b""))
    symptom = finding("queue-saturation", actions=[])
    told = [
        message(finding(explains=["queue-saturation"]), symptom, finding("idle", "critical", actions=[], evidence=[])),
        message(ends=True, zh=chinese),
        message({"id": "bare", "severity": "info", "title": "Bare"}, system=None),
        trial_message(1.0, "n"),
    ]
    told += [change_message(1.0, "prod", {"knob": "k", "old": None, "new": 1})] if kind != "alertmanager" else []
    for one in told:
        outcome, _, _, body = send(kind, one)
        assert outcome.fate == "delivered"
        jsonschema.validate(body, SCHEMAS[kind])


@pytest.mark.parametrize(
    ("kind", "status", "headers", "body", "fate", "after"),
    [
        ("webhook", 204, {}, b"", "delivered", None),
        ("webhook", 400, {}, b"no", "dead", None),
        ("webhook", 401, {}, b"no", "dead", None),
        ("webhook", 410, {}, b"", "disable", None),
        ("webhook", 429, {"Retry-After": "7"}, b"", "retry", 7.0),
        ("webhook", 503, {"Retry-After": "soon"}, b"", "retry", None),
        ("webhook", 302, {"Location": "/elsewhere"}, b"", "retry", None),
        ("pagerduty", 202, {}, b"{}", "delivered", None),
        ("pagerduty", 400, {}, b'{"status":"invalid event"}', "dead", None),
        ("pagerduty", 429, {}, b"", "retry", None),
        ("pagerduty", 500, {}, b"", "retry", None),
        ("slack", 200, {}, b"ok", "delivered", None),
        ("slack", 200, {}, b"<html>login</html>", "retry", None),
        ("slack", 404, {}, b"no_service", "disable", None),
        ("slack", 403, {}, b"action_prohibited", "disable", None),
        ("slack", 400, {}, b"channel_not_found\n", "disable", None),
        ("slack", 410, {}, b"channel_is_archived", "disable", None),
        ("slack", 500, {}, b"rollup_error", "retry", None),
        ("slack", 400, {}, b"user_not_found", "dead", None),
        ("slack", 200, {}, b'{"ok":true}', "delivered", None),
        ("slack", 200, {}, b'{"ok":false,"error":"invalid_blocks"}', "dead", None),
        ("slack", 200, {}, b'{"ok":false,"error":"invalid_token"}', "disable", None),
        ("slack", 200, {"Retry-After": "7"}, b'{"ok":false,"error":"ratelimited"}', "retry", 7.0),
        ("slack", 400, {}, b'{"ok":true}', "dead", None),
        ("slack", 400, {}, b"invalid_payload", "dead", None),
        ("slack", 429, {"Retry-After": "30"}, b"", "retry", 30.0),
        ("feishu", 200, {}, b'{"StatusCode":0,"StatusMessage":"success"}', "delivered", None),
        ("feishu", 200, {}, b'{"code":19021,"msg":"sign match fail"}', "dead", None),
        ("feishu", 200, {}, b'{"StatusCode":0,"StatusMessage":"","code":19022,"msg":"Ip Not Allowed"}', "dead", None),
        ("feishu", 200, {}, b'{"code":19024,"msg":"Key Words Not Found"}', "dead", None),
        ("feishu", 200, {}, b'{"code":19007,"msg":"Bot Not Enabled"}', "disable", None),
        ("feishu", 200, {}, b'{"code":9499,"msg":"too many request"}', "retry", 60.0),
        ("feishu", 400, {}, b'{"code":9499,"msg":"frequency limited psm[lark.oapi]"}', "retry", 60.0),
        ("feishu", 200, {}, b'{"code":2200,"msg":"internal error"}', "retry", None),
        ("feishu", 400, {}, b'{"code":0}', "dead", None),
        ("feishu", 200, {}, b'{"code":19001,"msg":"access token invalid"}', "disable", None),
        ("feishu", 200, {}, b'{"code":11232,"msg":"frequency limited"}', "retry", 60.0),
        ("feishu", 400, {}, b'{"code":230020,"msg":"chat rate limit"}', "retry", 60.0),
        ("feishu", 400, {}, b'{"code":9499,"msg":"Bad Request"}', "dead", None),
        ("feishu", 429, {"Retry-After": "9"}, b'{"code":99991400}', "retry", 9.0),
        ("feishu", 502, {}, b"<html>", "retry", None),
        ("feishu", 400, {}, b'{"code":[]}', "dead", None),
        ("feishu", 200, {}, b'{"code":{}}', "retry", None),
        ("dingtalk", 200, {}, b'{"errcode":410100,"errmsg":"too fast"}', "retry", 600.0),
        ("dingtalk", 200, {}, b'{"errcode":310000,"errmsg":"sign not match"}', "dead", None),
        (
            "dingtalk",
            200,
            {},
            b'{"errcode":130101,"errmsg":"send too fast, exceed 20 times"}',
            "retry",
            600.0,
        ),
        ("dingtalk", 200, {}, b'{"status":1111,"wait":5,"punish":"deny"}', "retry", None),
        ("dingtalk", 200, {}, b'{"errcode":-1,"errmsg":"busy"}', "retry", None),
        ("dingtalk", 200, {}, b'{"errcode":430102,"errmsg":"text"}', "dead", None),
        ("dingtalk", 200, {}, b'{"errcode":300005,"errmsg":"token is not exist"}', "disable", None),
        ("dingtalk", 200, {}, b'{"errcode":400106,"errmsg":"no robot"}', "disable", None),
        ("dingtalk", 200, {}, b'{"errcode":300001,"errmsg":"token is not exist"}', "disable", None),
        ("wecom", 200, {}, b'{"errcode":45009,"errmsg":"freq"}', "retry", 60.0),
        ("wecom", 200, {}, b'{"errcode":93000,"errmsg":"invalid webhook url"}', "disable", None),
        ("wecom", 200, {}, b'{"errcode":45033,"errmsg":"too many at once"}', "retry", None),
        ("wecom", 200, {}, b'{"errcode":93004,"errmsg":"robot stopped"}', "disable", None),
        ("wecom", 200, {}, b'{"errcode":-1,"errmsg":"system busy"}', "retry", None),
        ("wecom", 200, {}, b'{"errcode":40058,"errmsg":"invalid"}', "dead", None),
        ("wecom", 200, {}, b"not json", "retry", None),
        ("wecom", 200, {}, b'{"errcode":true}', "retry", None),
        ("wecom", 200, {}, b"[" * 100_000, "retry", None),
    ],
)
def test_what_answers_mean(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch,
    kind: str, status: int, headers: dict[str, str], body: bytes, fate: str, after: float | None,
) -> None:  # fmt: skip
    monkeypatch.setenv("KEY", "k" * 32)
    receiver.reply = lambda path, sent, content: (status, headers, body)
    lines = ('key_env = "KEY"',) if kind == "pagerduty" else ()
    outcome, *_ = send(kind, message(), *lines)
    assert (outcome.fate, outcome.after) == (fate, after), outcome


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("feishu", b'{"code":19021,"msg":"sign match fail"}', "Check secret_env or secret_file of this sink, and this"),
        ("feishu", b'{"code":19022,"msg":"Ip Not Allowed"}', "Add this machine's address"),
        ("feishu", b'{"code":19024,"msg":"Key Words Not Found"}', "Make infradoc one of the bot's keywords"),
        ("dingtalk", b'{"errcode":310000,"errmsg":"keywords not in content"}', "every message has the word infradoc"),
    ],
)
def test_a_refusal_that_a_person_has_to_mend_says_what_to_do(
    send: Any, receiver: Any, message: Make, kind: str, body: bytes, told: str
) -> None:
    receiver.answers(200, body)
    outcome, *_ = send(kind, message())
    assert outcome.fate == "dead" and told in outcome.text
    assert "infradoc" in receiver.got[-1][2].decode(), "the keyword that the sentence names is in the message"


@pytest.mark.parametrize("kind", ["webhook", "slack", "wecom", "pagerduty"])
def test_a_receiver_that_echoes_secrets_does_not_get_them_shown(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("KEY", "R0UTINGKEY")
    monkeypatch.setenv("TOKEN", "tok-en-tok-en")
    receiver.reply = lambda path, sent, content: (
        400, {}, f"bad: {sent['host']}{path} {sent.get('authorization')} R0UTINGKEY".encode(),
    )  # fmt: skip
    keys = ('key_env = "KEY"',) if kind == "pagerduty" else ('bearer_env = "TOKEN"',)
    outcome, *_ = send(kind, message(), *keys)
    assert outcome.fate == "dead" and "SECRETKEY" not in outcome.text and "tok-en" not in outcome.text
    assert kind != "pagerduty" or "R0UTINGKEY" not in outcome.text


def test_secrets_and_prompts_of_findings_stay_here(send: Any, receiver: Any, finding: Any, message: Make) -> None:
    evil = "--api-key sk-abcdefghijklmnopqrstuvwx prompt: 'my private words' HF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaaaa"
    told = message(finding(cause=evil, evidence=[{"text": evil, "source": evil}]), target="u:pass@host")
    for kind in ("webhook", "slack", "cloudevents", "alertmanager_webhook"):
        receiver.got.clear()
        send(kind, told)
        raw = receiver.got[-1][2].decode()
        assert "sk-abc" not in raw and "private words" not in raw and "hf_aaa" not in raw and "REDACTED" in raw


def test_apprise_delivers_through_its_own_services(
    send: Any, receiver: Any, message: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers(200, b"{}")
    monkeypatch.setenv("CHAT", f"json://127.0.0.1:{receiver.port}/in")
    outcome, where, _, body = send("apprise", message(), 'timeout = "30s"', path="")
    assert outcome.fate == "dead" or where  # SINK_URL is plain http, which apprise does not know
    import infradoc.alerts.sinks.apprise as chat

    monkeypatch.setattr(chat.AppriseSink, "address", lambda self, default="": f"json://127.0.0.1:{receiver.port}/in")
    outcome, where, _, body = send("apprise", message(), 'timeout = "30s"')
    assert outcome.fate == "delivered" and where == "/in" and "Title of kv-thrashing" in body["message"]
    receiver.answers(500)
    outcome, *_ = send("apprise", message(), 'timeout = "30s"')
    assert outcome.fate == "retry" and outcome.trips
