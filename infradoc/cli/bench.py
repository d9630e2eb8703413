"""`infradoc bench URL`: send real traffic and measure it at the client."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
import sys
import time
from dataclasses import replace
from pathlib import Path

from infradoc.cli.args import Parser, duration
from infradoc.cli.output import check_writable
from infradoc.config import Auth, load_config
from infradoc.errors import InfradocError
from infradoc.load.http import Origin
from infradoc.load.run import Load, LoadResult, run_load
from infradoc.load.spec import ClassSpec, LoadSpec, load_spec, parse_class
from infradoc.load.summary import summarise, table
from infradoc.plurals import counted
from infradoc.small_file import open_regular
from infradoc.sources.credentials import request_headers

SUMMARY = "Send real traffic and measure it at the client."
DEFAULT_CLASS = "chat:closed=4,kind=chat,prompt_tokens=64,max_tokens=64"
EPILOG = f"""\
A class is NAME:key=value,... with the keys
  closed=N       N clients that wait for their answer, or
  open=R         R requests a second, Poisson arrivals
  kind=          chat | completion | tokenize
  prompt_tokens=24 or 16-32      words of the prompt, one token each; a chat template adds its own
  shared_tokens=0                of them, at the start, the same in every request: a system prompt
  max_tokens=12-36  bytes=200000  count=N
  think=SECONDS  pause after each answer
  pace=SECONDS   each client sends one request in each slot of this length, at a moment drawn from the seed
  ignore_eos=true   stream=false  temperature=0.7
Without --class: {DEFAULT_CLASS}
Percentiles carry their number of samples; P99 is shown from 100 samples on, P90 from 10.

examples:
  infradoc bench http://localhost:8000 --duration 1m
  infradoc bench http://localhost:8000 --class chat:closed=8,kind=chat,prompt_tokens=64,max_tokens=64 \\
    --class docs:open=0.5,kind=completion,prompt_tokens=1000-2000,max_tokens=16 --json result.json
"""


def parser() -> Parser:
    """The command's flags."""
    made = Parser(
        prog="infradoc bench", description=SUMMARY, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("url", metavar="URL|NAME", help="server, e.g. http://127.0.0.1:8000, or a name of infradoc.toml")
    made.add_argument("--class", dest="classes", action="append", default=[], metavar="SPEC", help="a request class")
    made.add_argument("--spec", type=Path, metavar="FILE", help="TOML or JSON file with seed, duration and classes")
    made.add_argument("--seed", type=int, help="texts, lengths and arrivals follow from it (default 1)")
    made.add_argument("--duration", type=duration, metavar="30s", help="how long requests are started (default 30s)")
    made.add_argument("--warmup", type=duration, metavar="5s", help="sent but not measured (default 0)")
    made.add_argument("--timeout", type=duration, metavar="2m", help="longest wait for one answer (default 2m)")
    made.add_argument("--model", help="model name to ask for (default: the first of /v1/models)")
    made.add_argument("--json", metavar="FILE|-", help="write the result as JSON; - is stdout, in place of the table")
    made.add_argument(
        "--client-out", type=Path, metavar="FILE", help="append a JSON line per finished request, at once"
    )
    made.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    made.add_argument("--config", metavar="FILE", help="default: infradoc.toml here, then in ~/.config/infradoc")
    made.add_argument("--ca", type=Path, metavar="FILE", help="certificate authority of an https server")
    return made


def run(argv: list[str]) -> int:
    """Run the command; 0 when a request was answered within the measured time, else 1. Raises InfradocError."""
    args = parser().parse_args(argv)
    spec = spec_of(args)
    if args.json and args.json != "-":
        check_writable(Path(args.json), "--json")
    named = load_config(args.config).targets.get(args.url)
    if named is not None and not named.url:
        raise InfradocError(f"{args.url} has no server URL, only files.", "bench needs a running server.")
    auth = named.auth if named is not None else Auth()
    args.url = named.url if named is not None else args.url
    url = Origin.parse(args.url).url
    print(
        f"infradoc bench: {counted(len(spec.classes), 'request class', 'request classes')}, seed {spec.seed}, to {url}",
        file=sys.stderr,
    )
    result = asyncio.run(measure(args, spec, auth))
    summary = summarise(result)
    if args.json and args.json != "-":
        write_json(Path(args.json), summary)
    print(json.dumps(summary, indent=1) if args.json == "-" else table(summary))
    good = any(record.ok and record.end < result.measured_to for record in result.records)
    return 0 if good else 1


def spec_of(args: argparse.Namespace) -> LoadSpec:
    """The load of a command line: the file, then the flags over it. Raises InfradocError."""
    if args.spec and args.classes:
        raise InfradocError("--spec and --class are both given.", "Put all classes into the file, or use flags alone.")
    if args.spec:
        spec = load_spec(args.spec)
    else:
        spec = LoadSpec(tuple(parse_class(text) for text in args.classes or [DEFAULT_CLASS]))
    refuse_twins(spec.classes)
    given = {
        key: getattr(args, key) for key in ("seed", "duration", "warmup", "timeout") if getattr(args, key) is not None
    }
    if given.get("duration") == 0:
        given["duration"] = None
    if all(c.count for c in spec.classes) and "duration" not in given and not args.spec:
        given["duration"] = None
    spec = replace(spec, **given)
    if spec.duration is None and not all(c.count for c in spec.classes):
        raise InfradocError("The load would never end.", "Give --duration, or count=N to each class.")
    return spec


def refuse_twins(classes: tuple[ClassSpec, ...]) -> None:
    """Two classes of one name would be measured as one. Raises InfradocError."""
    names = [spec.name for spec in classes]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InfradocError(f"Two request classes are named {twins[0]}.", "Give each class a name of its own.")


async def measure(args: argparse.Namespace, spec: LoadSpec, auth: Auth) -> LoadResult:
    """Run the load; SIGINT and SIGTERM end it early and keep what was measured. Raises InfradocError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    ca = args.ca or (Path(auth.ca_file) if auth.ca_file else None)
    shown = sys.stderr.isatty()
    try:
        return await run_load(
            args.url,
            spec,
            model=args.model,
            headers=authorisation(args.api_key_env) or request_headers(auth),
            tls=tls_context(args.url, ca),
            client_out=args.client_out,
            stop=stop,
            progress=Progress(spec.duration) if shown else None,
        )
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Progress:
    """One line on the terminal that says how far the load is; never on stdout."""

    def __init__(self, duration: float | None) -> None:
        self._began = time.monotonic()
        self._of = "" if duration is None else f" of {duration:g}"

    def __call__(self, load: Load) -> None:
        failed = sum(not record.ok for record in load.records)
        text = f"{time.monotonic() - self._began:.0f}{self._of} s: {len(load.records)} of {load.begun} requests ended"
        print(f"\r{text}, {failed} failed\x1b[K", end="", file=sys.stderr, flush=True)


def authorisation(name: str | None) -> dict[str, str]:
    """The header for the key in environment variable `name`. Raises InfradocError when it is empty."""
    if name is None:
        return {}
    key = os.environ.get(name, "")
    if not key:
        raise InfradocError(f"The environment variable {name} (--api-key-env) is empty.", "Put the API key into it.")
    return {"Authorization": f"Bearer {key}"}


def tls_context(url: str, ca: Path | None) -> ssl.SSLContext | None:
    """A verifying context for an https URL. Raises InfradocError when the CA file is not usable."""
    if not url.lower().startswith("https://"):
        return None
    try:
        if ca:
            open_regular(ca).close()  # OpenSSL would wait for ever for the writer of a pipe
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise InfradocError(f"The certificate authority {ca} cannot be used: {why}.", "Give a PEM file.") from error


def write_json(path: Path, summary: object) -> None:
    """Write the result. Raises InfradocError."""
    try:
        path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InfradocError(f"Cannot write {path}: {error.strerror}.", "Give --json another file.") from error
