"""`infradoc fit MODEL --gpu GPU`: whether a launch fits the memory, part by part, and the nearest that does."""

from __future__ import annotations

import argparse
import json
import re
import sys

from infradoc.cli.args import Parser
from infradoc.cli.fit_input import read_gpu, read_model
from infradoc.cli.fit_text import as_data, print_text
from infradoc.cli.fit_words import WORDS
from infradoc.errors import InfradocError, visible
from infradoc_rules.sizing.account import account
from infradoc_rules.sizing.combined import proposals
from infradoc_rules.sizing.dtypes import BY_CHECKPOINT, DTYPES, KERNELS, KV_DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.model import SizingError
from infradoc_rules.sizing.setting import Setting
from infradoc_rules.sizing.supported import refused, startable

SUMMARY = "Say before the start whether a model fits, and what would."
EXIT_DOES_NOT_FIT = 20
HELP = """\
MODEL: a well-known name in any spelling ("llama 3.1 8b", Qwen/Qwen2.5-32B-Instruct-AWQ), a config.json of Hugging
Face, or the folder that holds it. Nothing is downloaded. Defaults are those of vLLM's newest version, or of the one
that --engine-version names. Exit codes: 0 fits, 20 does not, 2 usage.

examples:
  infradoc fit llama-3.1-8b --gpu L4
  infradoc fit llama-3.1-70b --gpu H100 --tp 4 --max-model-len 32K
"""
_STORED = ("none", *QUANTIZATIONS, *KERNELS, *sorted(BY_CHECKPOINT))
_UNITS = {"": 1, "k": 1000, "K": 1024}


def parser() -> argparse.ArgumentParser:
    """The command's flags, spelled as vLLM's."""
    made = Parser(
        prog="infradoc fit", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("model", metavar="MODEL", help="name, folder or config.json")
    made.add_argument("--gpu", required=True, help="for example H100, 'A100 40GB', L4, 4090")
    made.add_argument("--tp", "--tensor-parallel-size", type=_count, default=1, metavar="N", help="GPUs of a stage")
    made.add_argument("--pp", "--pipeline-parallel-size", type=_count, default=1, metavar="N", help="stages")
    made.add_argument("--max-model-len", type=_count, metavar="N", help="tokens of the longest request (32768, 32K)")
    made.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="of the weights")
    made.add_argument("--quantization", choices=_STORED, help="of the weights (default: the model's)")
    made.add_argument("--kv-cache-dtype", choices=("auto", *KV_DTYPES), default="auto", help="of the KV cache")
    made.add_argument("--gpu-memory-utilization", type=_fraction, metavar="F", help="default 0.92, 0.9 before 0.22")
    made.add_argument("--max-num-seqs", type=_count, metavar="N", help="requests of a step (default: by the GPU)")
    made.add_argument("--max-num-batched-tokens", type=_count, metavar="N", help="tokens of a step (likewise)")
    made.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs")
    made.add_argument(
        "--engine-version", type=_version, metavar="V", help="of vLLM, for example 0.11 (default: newest)"
    )
    made.add_argument("--format", choices=("rich", "json"), default="rich", help="rich for people, json for programs")
    made.add_argument("--lang", choices=tuple(WORDS), default="en", help="language of the texts")
    return made


def _count(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([kK]?)", text)
    number = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < number < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 up")
    return number


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:  # false for nan too
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no share of the memory; write for example 0.9")
    return number


def _version(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?.{0,40}", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no version; write for example 0.11")
    return tuple(int(part or 0) for part in found.groups())


def run(argv: list[str]) -> int:
    """Print the account; 0 when it fits, 20 when it does not. Raises InfradocError for what cannot be judged."""
    args = parser().parse_args(argv)
    model = read_model(args.model)
    setting = Setting(
        gpu=read_gpu(args.gpu),
        tensor_parallel=args.tp,
        pipeline_parallel=args.pp,
        max_model_len=args.max_model_len,
        dtype=None if args.dtype == "auto" else args.dtype,
        quantization=None if args.quantization in BY_CHECKPOINT else KERNELS.get(args.quantization, args.quantization),
        kv_dtype=None if args.kv_cache_dtype == "auto" else args.kv_cache_dtype,
        fraction=args.gpu_memory_utilization,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        eager=args.enforce_eager,
        version=args.engine_version,
    )
    if (instead := refused(model, setting)) is not None:
        raise InfradocError(
            f"{setting.gpu.name} (compute capability {setting.gpu.capability:g}) has no bfloat16.",
            f"Use --dtype {instead}.",
        )
    asked, setting = setting, startable(model, setting)
    must = {} if setting == asked else {"dtype": str(setting.dtype)}
    try:
        made = account(model, setting)
        others, together = proposals(model, setting) if made.problem else ([], [])
    except SizingError as error:
        text = visible(str(error))
        raise InfradocError(f"{text[:1].upper()}{text[1:]}.", "See `infradoc fit --help`.") from error
    if args.format == "json":
        json.dump(
            as_data(model, setting, made, others, together) | {"must_set": must},
            sys.stdout,
            indent=1,
            ensure_ascii=False,
        )
        print()
    else:
        words = WORDS[args.lang]
        about = {"gpu": setting.gpu.name, "capability": setting.gpu.capability or 0.0}
        notes = [words["must_set"].format(**about, **must)] if must else []
        print_text(model, setting, made, others, together, notes, words)
    return EXIT_DOES_NOT_FIT if made.problem else 0
