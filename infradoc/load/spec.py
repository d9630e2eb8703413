"""What to send: request classes, each closed or open loop, from flags or from a TOML or JSON file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from infradoc.errors import InfradocError
from infradoc.small_file import read_small
from infradoc_rules.near import near

Kind = Literal["chat", "completion", "tokenize"]
KINDS: tuple[Kind, ...] = ("chat", "completion", "tokenize")
# Above what one client process can hold in memory or send: beyond it the load would measure the client, or kill it.
MOST: Mapping[str, int] = {
    "closed": 10_000,
    "open": 10_000,
    "prompt_tokens": 10_000_000,
    "shared_tokens": 10_000_000,
    "max_tokens": 10_000_000,
    "bytes": 1 << 30,
}
_MAY_BE_ZERO = ("think", "pace", "temperature", "shared_tokens")
EXAMPLE = "Example: --class chat:closed=4,kind=chat,prompt_tokens=24,max_tokens=12-36"


@dataclass(frozen=True, slots=True)
class Span:
    """An inclusive range of whole numbers; a request's number is drawn uniformly from it."""

    low: int
    high: int

    @classmethod
    def parse(cls, value: object, where: str) -> Span:
        """Read 24, "24", "12-36" or [12, 36]. Raises InfradocError."""
        parts = value if isinstance(value, list) else str(value).split("-")
        try:
            numbers = [int(part) for part in parts]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) not in (1, 2) or numbers[0] < 1 or numbers[-1] < numbers[0]:
            raise InfradocError(f"{where} is {value!r}, which is no range of positive numbers.", "Write 24 or 12-36.")
        return cls(numbers[0], numbers[-1])


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """One request class.

    Exactly one of `closed` (clients that wait for their answer) and `open` (requests a second, Poisson arrivals) is
    set. `prompt_tokens` counts plain words of the prompt, nearly all one token each; a chat template adds its own.
    `bytes` is the size of a document for kind "tokenize". `think` is the pause of a closed client in seconds.
    `pace` gives each closed client time slots of so many seconds and one request in each, at a moment drawn from the
    seed: the rate is the same whatever the server does, and no two clients stay in step.
    `count` ends the class after so many requests.
    """

    name: str
    kind: Kind = "chat"
    closed: int | None = None
    open: float | None = None
    think: float = 0.0
    pace: float = 0.0
    prompt_tokens: Span = Span(64, 64)
    shared_tokens: int = 0
    max_tokens: Span = Span(64, 64)
    bytes: int = 200_000
    ignore_eos: bool = False
    stream: bool = True
    temperature: float = 0.0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """The whole load: every text, length and arrival is a function of `seed` and a request's index.

    `duration` is seconds in which requests are started, warm-up included; None = until every class has its count.
    Requests that start within `warmup` seconds are sent and written but not measured.
    """

    classes: tuple[ClassSpec, ...]
    seed: int = 1
    duration: float | None = 30.0
    warmup: float = 0.0
    timeout: float = 120.0  # seconds a request may take

    def as_json(self) -> dict[str, Any]:
        """Plain data for reports."""
        return asdict(self)


def parse_class(text: str) -> ClassSpec:
    """Read one `--class` flag: `name:key=value,...`. Raises InfradocError naming the key."""
    name, colon, rest = text.partition(":")
    if not name or not colon:
        raise InfradocError(f"--class {text!r} has no name.", EXAMPLE)
    pairs = [item.partition("=") for item in rest.split(",") if item]
    for key, equals, _ in pairs:
        if not equals:
            raise InfradocError(f"--class {name}: {key!r} has no value.", EXAMPLE)
    return class_from(name, {key.strip(): value.strip() for key, _, value in pairs})


def class_from(name: str, values: Mapping[str, object]) -> ClassSpec:
    """Build a class from keys as they stand in a flag or a file. Raises InfradocError."""
    known = [f.name for f in fields(ClassSpec) if f.name != "name"]
    built: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise InfradocError(f"Request class {name}: {key!r} is not a key{_did_you_mean(key, known)}.", EXAMPLE)
        built[key] = convert(key, value, f"{key} of request class {name}")
        largest = built[key].high if isinstance(built[key], Span) else built[key]
        if key in MOST and largest > MOST[key]:
            raise InfradocError(f"{key} of request class {name} is {value!r}.", f"At most {MOST[key]:,} makes sense.")
    spec = ClassSpec(name=name, **built)
    if (spec.closed is None) == (spec.open is None):
        raise InfradocError(
            f"Request class {name} needs either closed=N (clients) or open=R (requests a second).", EXAMPLE
        )
    if spec.shared_tokens > spec.prompt_tokens.low:
        message = f"shared_tokens of request class {name} is {spec.shared_tokens}, more than its shortest prompt."
        raise InfradocError(message, f"Give at most {spec.prompt_tokens.low}, or longer prompts.")
    return spec


def convert(key: str, value: object, where: str) -> object:
    """One value as its field wants it. Raises InfradocError."""
    if key in ("prompt_tokens", "max_tokens"):
        return Span.parse(value, where)
    if key in ("ignore_eos", "stream"):
        return truth(value, where)
    if key == "kind":
        if value not in KINDS:
            raise InfradocError(f"{where} is {value!r}.", f"Kinds are {', '.join(KINDS)}.")
        return value
    return positive(
        value, where, whole=key in ("closed", "bytes", "count", "shared_tokens"), zero_ok=key in _MAY_BE_ZERO
    )


def truth(value: object, where: str) -> bool:
    """A switch from a flag or a file. Raises InfradocError."""
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in known:
        raise InfradocError(f"{where} is {value!r}.", "Write true or false.")
    return known[str(value).lower()]


def positive(value: object, where: str, *, whole: bool = False, zero_ok: bool = False) -> float | int:
    """A number above zero (or zero, where that has a meaning). Raises InfradocError."""
    try:
        number = int(str(value)) if whole else float(str(value))
    except ValueError:
        number = -1
    if not (number > 0 or (zero_ok and number == 0)) or number == float("inf"):
        raise InfradocError(f"{where} is {value!r}.", f"It must be a {'whole ' if whole else ''}number above 0.")
    return number


def load_spec(path: Path) -> LoadSpec:
    """Read a spec file: top-level seed, duration, warmup, timeout, and a table `class` of request classes by name.

    Raises InfradocError naming the file and the key.
    """
    try:
        text = read_small(path).decode()
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        message = f"The load file {path} cannot be read: {error.strerror}."
        raise InfradocError(message, "Give a TOML or JSON file.") from error
    except (ValueError, RecursionError) as error:
        raise InfradocError(f"The load file {path} cannot be read: {error}.", "Write it as TOML or JSON.") from error
    try:
        return spec_from(data)
    except InfradocError as error:
        raise InfradocError(f"{path}: {error.message}", error.hint) from error


def spec_from(data: object) -> LoadSpec:
    """Build a spec from the data of a file. Raises InfradocError."""
    if not isinstance(data, dict) or not isinstance(data.get("class"), dict) or not data["class"]:
        raise InfradocError("There is no request class.", "Add a table [class.NAME].")
    known = ["seed", "duration", "warmup", "timeout", "class"]
    for key in data:
        if key not in known:
            raise InfradocError(
                f"{key!r} is not a key{_did_you_mean(str(key), known)}.", f"Keys are {', '.join(known)}."
            )
    classes = []
    for name, values in data["class"].items():
        if not isinstance(values, dict):
            raise InfradocError(f"class.{name} is no table.", EXAMPLE)
        classes.append(class_from(str(name), values))
    numbers = {
        key: positive(data[key], key, zero_ok=key == "warmup")
        for key in ("duration", "warmup", "timeout")
        if key in data
    }
    seed = int(positive(data.get("seed", 1), "seed", whole=True, zero_ok=True))
    return LoadSpec(tuple(classes), seed=seed, **numbers)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    """ ", did you mean x" for an error text, or nothing."""
    meant = near(word, known)
    return f", did you mean {meant}" if meant else ""
