"""`python -m infradoc_engine serve|model`: the engine's own command line. Imports torch only to serve."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from infradoc_engine import serve_help
from infradoc_engine.config import EngineConfig, add_arguments, cpu_count, default_runtime_dir, from_arguments
from infradoc_engine.knobs import KnobError

INTERNAL_ERROR, USAGE_ERROR = 1, 2
_MODEL_EXAMPLE = "example: infradoc model get smollm2-135m"


class _Parser(argparse.ArgumentParser):
    """Errors are one sentence: the usage of every knob before it would scroll it away. Subcommands inherit this."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="infradoc", description="The bundled paged-KV engine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve|model")
    serve = commands.add_parser(
        "serve",
        help="serve a model over an OpenAI-compatible API",
        description=textwrap.fill(serve_help.SERVE, 100),
        epilog=serve_help.epilog(default_runtime_dir()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(serve)
    model = commands.add_parser("model", help="models in the cache", epilog=_MODEL_EXAMPLE)
    actions = model.add_subparsers(dest="action", required=True, metavar="get")
    get = actions.add_parser("get", help="fetch a known model into the cache", epilog=_MODEL_EXAMPLE)
    get.add_argument("name", metavar="NAME", help="such as smollm2-135m")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 fine, 1 internal error, 2 usage or start error (one sentence on stderr), 130 interrupted."""
    parsed = make_parser().parse_args(arguments)
    try:
        return _get(parsed.name) if parsed.command == "model" else _serve(from_arguments(parsed))
    except KnobError as error:
        return _fail("serve", str(error))
    except ModuleNotFoundError as error:
        install = "pip install 'infradoc[engine]' (in a checkout: pip install '.[engine]')"
        return _fail(parsed.command, f"{error.name} is not installed; run: {install}")
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("INFRADOC_DEBUG"):
            raise
        first_line = (str(error).splitlines() or [""])[0]
        _fail(parsed.command, f"internal error, {type(error).__name__}: {first_line}; INFRADOC_DEBUG=1 shows where.")
        return INTERNAL_ERROR


def _get(name: str) -> int:
    from infradoc_engine.model_get import ModelGetError, get_model

    try:
        print(get_model(name))
    except ModelGetError as error:
        return _fail("model get", str(error))
    return 0


def _serve(config: EngineConfig) -> int:
    from infradoc_engine.model_get import ModelGetError, find_model

    try:
        find_model(config.model)  # before torch is loaded: the most common slip is answered at once
    except ModelGetError as error:
        return _fail("serve", str(error))
    threads = config.knobs["omp_num_threads"] or cpu_count()
    os.environ["OMP_NUM_THREADS"] = str(threads)  # OpenMP reads it once, when torch is loaded
    from infradoc_engine.memory import NotEnoughMemory
    from infradoc_engine.server.build import load
    from infradoc_engine.server.serve import StartError, check_faults, open_port, serve
    from infradoc_engine.weights.errors import ModelFileError

    try:
        check_faults(config.server)
        listener = open_port(config.server)
        loaded = load(config)
        serve(config, loaded, listener)
    except (StartError, ModelFileError, NotEnoughMemory, ModelGetError, ValueError) as error:
        if config.server.debug:
            raise
        return _fail("serve", str(error))
    return 0


def _fail(command: str, sentence: str) -> int:
    print(f"infradoc {command}: {sentence}", file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
