"""What a sink is: it turns a message into one request, and says what the answer means."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit, urlunsplit

from infradoc.alerts.backoff import Limit, retry_after
from infradoc.alerts.clean import clean_text
from infradoc.alerts.config import SinkConfig
from infradoc.sources.credentials import SecretError, read_secret

Fate = Literal["delivered", "retry", "dead", "disable"]
RETRIED = frozenset({408, 425, 429})
_TOO_MANY = re.compile(r"(?i)too (?:many|fast|frequent)|frequency limit|rate.?limit|限流|频率限制|太快")


@dataclass(frozen=True, slots=True)
class Request:
    """A POST. Address, headers and body may hold secrets, so its repr shows none of them."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: header names in lower case, at most 64 KB of body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to. `text`: for people. `after`: seconds that the receiver asks us to keep away.

    trips: whether it counts for the sink's circuit breaker.
    """

    fate: Fate
    text: str = ""
    after: float | None = None
    trips: bool = False


class Sink:
    """Base of all sinks that speak HTTP."""

    kind: ClassVar[str]
    per: ClassVar[Literal["group", "incident"]] = "group"
    takes_changes: ClassVar[bool] = False
    heartbeat: ClassVar[float] = 0.0  # seconds after which what still fires is said again; 0: never
    limits: ClassVar[tuple[Limit, ...]] = ()
    concurrency: ClassVar[int] = 8

    def __init__(self, config: SinkConfig) -> None:
        self.config = config

    @property
    def name(self) -> str:
        """The sink's name in the configuration."""
        return self.config.name

    @property
    def rate(self) -> tuple[Limit, ...]:
        """The limits in force: the configured one, else the service's."""
        return self.config.rate or self.limits

    @property
    def width(self) -> int:
        """How many requests may be under way at once."""
        return self.config.concurrency or self.concurrency

    def request(self, message: Mapping[str, Any], now: float) -> Request:
        """The request of a message. Raises SecretError when a configured secret cannot be had."""
        raise NotImplementedError

    def judge(self, answer: Answer, now: float) -> Outcome:
        """What the answer means."""
        return by_status(answer, now)

    def check(self) -> None:
        """Fetch every secret once. Raises SecretError."""
        self.address()
        self.secrets()
        self.key()
        self.auth_headers()

    def address(self, default: str = "") -> str:
        """The configured address. Raises SecretError."""
        config = self.config
        return config.url or read_secret(config.url_env, config.url_file, f"address of {self.name}") or default

    def address_of(self, path: str, known: str = "", default: str = "") -> str:
        """`path` of an API at the configured address, which may end in the API's own path already.

        Services' documents name the whole address. `known`: a pattern of such ends, by default `path`. What stands
        before it (a proxy's prefix) and a query stay. Raises SecretError.
        """
        parts = urlsplit(self.address(default).strip())
        base = re.sub(rf"/*(?:{known or re.escape(path)})?/*$", "", parts.path)
        return urlunsplit(parts._replace(path=base + path))

    def key(self) -> str:
        """The routing key, "" when none is configured. Raises SecretError."""
        return read_secret(self.config.key_env, self.config.key_file, f"key of {self.name}") or ""

    def secrets(self) -> list[str]:
        """The signing secrets: several while one is being changed. Raises SecretError."""
        what = f"secret of {self.name}"
        found = [read_secret(env, "", what) for env in self.config.secret_env]
        found += [read_secret("", file, what) for file in self.config.secret_file]
        return [secret for secret in found if secret]

    def auth_headers(self) -> dict[str, str]:
        """The Authorization header, when one is configured. Raises SecretError."""
        config = self.config
        token = read_secret(config.bearer_env, config.bearer_file, f"bearer token of {self.name}")
        if token:
            if not (token.isascii() and token.isprintable()):
                raise SecretError(f"The bearer token of {self.name} has a character that no header takes.")
            return {"Authorization": f"Bearer {token}"}
        if config.basic_user:
            password = read_secret(config.basic_password_env, config.basic_password_file, f"password of {self.name}")
            pair = base64.b64encode(f"{config.basic_user}:{password or ''}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


def by_status(answer: Answer, now: float) -> Outcome:
    """The meaning of a status alone: 2xx taken, 410 never again, 429, 5xx and redirects later, other 4xx no more."""
    status = answer.status
    if 200 <= status < 300:
        return Outcome("delivered", f"HTTP {status}")
    text = f"HTTP {status}{said(answer)}"
    after = retry_after(answer.headers.get("retry-after"), now)
    if status == 410:
        return Outcome("disable", f"The receiver says that it is gone for good ({text}).")
    if 300 <= status < 400:
        return Outcome("retry", f"HTTP {status}: it redirects, and redirects are not followed.", after, True)
    if status in RETRIED or status >= 500:
        return Outcome("retry", text, after, True)
    return Outcome("dead", text)


def said(answer: Answer) -> str:
    """The beginning of what the receiver answered, for people."""
    text = clean_text(answer.body[:300].decode(errors="replace"), 200)
    return f": {text}" if text else ""


@dataclass(frozen=True, slots=True)
class Codes:
    """What the error codes in a service's answers mean; 0 is taken, and any code not named here is final.

    keys: where the code stands, the first that is there counts. retry: code -> seconds to keep away from the sink, None
    for no more than a retry's own wait. gone: the address, the robot or its group is no more. hints: code -> what a
    person has to mend. too_many: seconds to keep away when the words, whatever the code, speak of too many requests:
    services change that code more often than its words.
    """

    keys: tuple[str, ...]
    retry: Mapping[int, float | None]
    gone: frozenset[int]
    hints: Mapping[int, str] = field(default_factory=dict)
    too_many: float = 60.0


def by_code(answer: Answer, now: float, codes: Codes) -> Outcome:
    """The meaning of a code in the body of a 200, or of a 400: Feishu tells of its limits with either.

    A body without a code is no answer of that service.
    """
    body = answer.json()
    found = next((body[key] for key in codes.keys if key in body), None) if isinstance(body, dict) else None
    code = found if isinstance(found, int) and not isinstance(found, bool) else None
    if not 200 <= answer.status < 300 and (answer.status != 400 or not code):
        return by_status(answer, now)
    if code is None:
        return Outcome("retry", f"HTTP {answer.status} without the code of that service{said(answer)}", None, True)
    if code == 0:
        return Outcome("delivered", "code 0")
    text = f"code {code}{said(answer)}"
    if code in codes.gone:
        return Outcome("disable", f"The receiver does not know this address ({text}).")
    if code in codes.retry:
        return Outcome("retry", text, codes.retry[code], True)
    if _TOO_MANY.search(answer.body.decode(errors="replace")):
        return Outcome("retry", text, codes.too_many, True)
    return Outcome("dead", f"{text.removesuffix('.')}. {codes.hints[code]}" if code in codes.hints else text)


def as_json(value: Any) -> bytes:
    """Compact UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")
