"""Launch configuration: command-line flags to one frozen object, with the origin of every knob."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from infradoc_engine import serve_help
from infradoc_engine.knobs import KNOBS, Knob, KnobValue
from infradoc_engine.serve_help import FAULTS

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_MAX_BODY_BYTES = 8 * 2**20
LONGEST_DRAIN = 3600.0  # seconds
_LONGEST_PATIENCE = 86400.0
_IN_BYTES = frozenset({"device_memory_bytes", "swap_space"})
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP side. `max_body_bytes` bounds a request body; `stall_seconds` is the patience of /health.

    `drain_seconds`: how long a change that needs a drain lets running requests finish. `faults` are to be on from the
    start, as NAME[:key=value,...].
    """

    host: str = "127.0.0.1"
    port: int = 8000
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    stall_seconds: float = 10.0
    admin_remote: bool = False
    admin_token: str | None = None
    runtime_dir: Path = Path()
    debug: bool = False
    drain_seconds: float = 10.0
    enable_faults: bool = False
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The whole launch configuration. `knobs` holds every knob; None = derived at start."""

    model: str
    device: str
    server: ServerConfig
    knobs: Mapping[str, KnobValue]
    origins: Mapping[str, str]  # knob -> flag | config (the environment) | default


def parse_size(text: str) -> int:
    """Bytes of '800MB', '2GiB' or '1048576'; raises ValueError. MB is 10**6, MiB (and a bare M) 2**20."""
    match = _SIZE.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it like 800MB, 2GiB or a number of bytes")
    number, unit, binary = match.groups()
    power = " kmgt".index(unit.lower()) if unit else 0
    decimal = bool(unit) and not binary and text.strip().lower().endswith("b")
    try:
        return int(float(number) * (1000 if decimal else 1024) ** power)
    except OverflowError:
        raise ValueError(f"{text[:20]!r}... is not a size: it is beyond any number of bytes") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `serve`: the server's own and one per knob."""
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        help=f"a name (infradoc model get NAME), a GGUF file or a folder of Hugging Face (default {DEFAULT_MODEL})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this host only)")
    parser.add_argument("--port", type=_port, default=8000, help="port to listen on; 0 picks a free one (default 8000)")
    parser.add_argument(
        "--device", default="auto", help="where to compute: cpu, cuda, or auto: a GPU if there is one (default auto)"
    )
    parser.add_argument(
        "--max-body-bytes",
        type=_size_argument,
        default=DEFAULT_MAX_BODY_BYTES,
        metavar="SIZE",
        help="largest request body that is taken; a larger one gets 413 (default 8MiB)",
    )
    parser.add_argument(
        "--health-stall-seconds",
        type=_seconds_up_to(_LONGEST_PATIENCE),
        default=10.0,
        metavar="S",
        help="seconds without progress after which /health answers 503; a change waits as long for a step to end "
        "(default 10 s)",
    )
    parser.add_argument(
        "--admin-remote",
        action="store_true",
        help="let other hosts use /admin too, with the token (default: this host only)",
    )
    parser.add_argument(
        "--drain-seconds",
        type=_seconds_up_to(LONGEST_DRAIN),
        default=10.0,
        metavar="S",
        help="how long running requests may go on before a change that needs a drain sets them back (default 10 s)",
    )
    parser.add_argument(
        "--enable-faults",
        action="store_true",
        help="let --fault and POST /admin/faults break this server on purpose (default: they are refused)",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME[:KEY=VALUE,...]",
        help=f"a fault to be on from the start, repeatable, for example stall:seconds=60; one of {', '.join(FAULTS)}",
    )
    knobs = parser.add_argument_group("knobs", textwrap.fill(serve_help.KNOBS, 100))
    for knob in KNOBS.values():
        _add_knob(knobs, knob)


def from_arguments(arguments: argparse.Namespace, environment: Mapping[str, str] | None = None) -> EngineConfig:
    """Build the configuration from parsed flags; the environment is read here and nowhere else.

    Raises KnobError when a flag's value is out of bounds.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, KnobValue] = {}
    origins: dict[str, str] = {}
    for knob in KNOBS.values():
        given = getattr(arguments, knob.name)
        values[knob.name] = knob.default if given is None else knob.check(given)
        origins[knob.name] = "default" if given is None else "flag"
    threads = environment.get("OMP_NUM_THREADS", "")
    if values["omp_num_threads"] is None and threads.isdigit() and int(threads) > 0:
        values["omp_num_threads"], origins["omp_num_threads"] = int(threads), "config"
    runtime_dir = environment.get("INFRADOC_RUNTIME_DIR")
    server = ServerConfig(
        host=arguments.host,
        port=arguments.port,
        max_body_bytes=arguments.max_body_bytes,
        stall_seconds=arguments.health_stall_seconds,
        admin_remote=arguments.admin_remote,
        admin_token=environment.get("INFRADOC_ADMIN_TOKEN") or None,
        runtime_dir=Path(runtime_dir) if runtime_dir else default_runtime_dir(),
        debug=bool(environment.get("INFRADOC_DEBUG")),
        drain_seconds=arguments.drain_seconds,
        enable_faults=arguments.enable_faults,
        faults=tuple(arguments.fault),
    )
    return EngineConfig(arguments.model, arguments.device, server, values, origins)


def default_runtime_dir() -> Path:
    """Where this user's runtime files go; platformdirs warns when it has to fall back, which is no concern of users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_path("infradoc"))


def cpu_count() -> int:
    """Cores that this process may use (affinity), at least 1."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # macOS has no affinity
        return max(1, os.cpu_count() or 1)


def _add_knob(group: argparse._ArgumentGroup, knob: Knob) -> None:
    text = f"{knob.means} (default {_default_text(knob)}) [{knob.change}]".replace("%", "%%")
    if knob.kind == "bool":
        group.add_argument(knob.flag, dest=knob.name, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    convert: Callable[[str], object] = {"int": int, "float": float}.get(knob.kind, str)
    in_bytes = knob.name in _IN_BYTES
    if in_bytes:
        convert = _size_argument
    choices = [str(b) for b in knob.bounds] if knob.kind == "choice" else None
    metavar = None if choices else ("SIZE" if in_bytes else "N")
    group.add_argument(
        knob.flag, dest=knob.name, type=convert, choices=choices, default=None, metavar=metavar, help=text
    )


def _default_text(knob: Knob) -> str:
    if knob.kind == "bool":
        return "on" if knob.default else "off"
    return knob.unset if knob.default is None else str(knob.default)


def _size_argument(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds_up_to(most: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if 0 <= seconds <= most:  # neither NaN nor infinity is
            return seconds
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; give 0 to {most:g} seconds")

    return convert


def _port(text: str) -> int:
    if text.isdigit() and 0 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a whole number from 0 to 65535")
