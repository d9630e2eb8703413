"""`infradoc fit MODEL --gpu GPU`: whether a launch fits the memory, part by part, and the nearest that does."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from infradoc.cli.args import Parser
from infradoc.cli.fit_input import read_gpu, read_model
from infradoc.cli.fit_words import WORDS
from infradoc.errors import InfradocError, visible
from infradoc_rules.sizing.account import CONTEXT, ERRORS, HELD_OUT, Account, account
from infradoc_rules.sizing.dtypes import BY_CHECKPOINT, DTYPES, KERNELS, KV_DTYPES, QUANTIZATIONS
from infradoc_rules.sizing.model import Model, SizingError
from infradoc_rules.sizing.nearest import Nearest, nearest
from infradoc_rules.sizing.setting import Setting, dtype_of, quantization_in
from infradoc_rules.units import GIB

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
    try:
        made = account(model, setting)
        others = nearest(model, setting) if made.problem else []
    except SizingError as error:
        text = visible(str(error))
        raise InfradocError(f"{text[:1].upper()}{text[1:]}.", "See `infradoc fit --help`.") from error
    if args.format == "json":
        json.dump(as_data(model, setting, made, others), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        _print(model, setting, made, others, WORDS[args.lang])
    return EXIT_DOES_NOT_FIT if made.problem else 0


def as_data(model: Model, setting: Setting, made: Account, others: list[Nearest]) -> dict[str, Any]:
    """What the text says, as data: bytes on one GPU; errors as shares under and above."""
    return {
        "schema": "infradoc.fit/v1",
        "model": model.name,
        "parameters": model.parameters,
        "gpu": setting.gpu.name,
        "gpus": setting.tensor_parallel * setting.pipeline_parallel,
        "dtype": dtype_of(model, setting),
        "quantization": quantization_in(model, setting),
        "fits": not made.problem,
        "problem": made.problem or None,
        "certain": made.certain,
        "requests": round(made.requests, 2),
        "kv_bytes": made.kv,
        "bytes": asdict(made) | {"kv": made.kv, "context": CONTEXT},
        "kv_tokens": made.tokens,
        "errors": ERRORS,
        "held_out": dict(zip(("starts", "kv_gib_nine_of_ten", "kv_gib_worst"), HELD_OUT, strict=True)),
        "nearest": [
            {"change": dict(one.changed), "max_model_len": one.account.max_model_len}
            | {"requests": round(one.account.requests, 2), "kv_bytes": one.account.kv}
            for one in others
        ],
    }


def _print(model: Model, setting: Setting, made: Account, others: list[Nearest], words: Mapping[str, str]) -> None:
    """For people. rich is imported here: programs that read JSON need not wait for it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(words["part"])
    table.add_column(words["size"], justify="right")
    table.add_column(words["note"])
    for name, size, note in _rows(setting, made, words):
        table.add_row(name, f"{size / GIB:.2f}", note)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(_head(model, setting, made, words))
    console.print(table)
    for line in _verdict(model, made, words):
        console.print(line)
    if made.problem:
        console.print(words["nearest"] if others else words["none"])
    for one in others:
        console.print(_nearest(one, words))
    starts, nine, worst = HELD_OUT
    console.print(words["held_out"].format(starts=starts, nine=nine, worst=worst))
    if not made.problem:
        console.print(words["next"])


def _head(model: Model, setting: Setting, made: Account, words: Mapping[str, str]) -> str:
    stored = quantization_in(model, setting)
    dtype = dtype_of(model, setting) + (f" + {stored}" if stored not in (None, "none") else "")
    gpus = setting.tensor_parallel * setting.pipeline_parallel
    tokens = f"{made.max_model_len:,}"
    name = visible(f"{model.name} ({model.parameters / 1e9:.2f} B)")
    return words["head"].format(model=name, gpus=gpus, gpu=setting.gpu.name, dtype=dtype, tokens=tokens)


def _rows(setting: Setting, made: Account, words: Mapping[str, str]) -> list[tuple[str, int, str]]:
    def error(name: str) -> str:
        low, high = ERRORS[name]
        return words["within"].format(low=low * 100, high=high * 100)

    span = words["span"].format(low=made.kv_low / GIB, high=made.kv_high / GIB)
    unseen = setting.behaviour.unseen / GIB
    peak = words["unseen"].format(note=error("activation"), gib=unseen) if unseen else error("activation")
    graphs = (words["graphs"], made.graphs, error("graphs"))
    return [
        (words["budget"].format(fraction=setting.share), made.budget, words["exact"]),
        (words["weights"], made.weights, error("weights")),
        (words["activation"], made.activation, peak),
        (words["engine"], made.engine, error("engine")),
        *([graphs] if made.graphs_inside else []),
        (words["kv"], made.kv, span),
        (words["needed"], made.needed, error("kv")),
        *([] if made.graphs_inside else [graphs]),
        (words["context"], CONTEXT, words["beyond"]),
    ]


def _verdict(model: Model, made: Account, words: Mapping[str, str]) -> list[str]:
    key = f"{made.problem}_fail" if made.problem else "fits"
    lines = [
        words[key].format(
            requests=made.requests,
            tokens=f"{made.max_model_len:,}",
            per_token=f"{made.kv_per_token:,}",
            budget=made.budget / GIB,
            needed=made.needed / GIB,
            kv=made.kv / GIB,
        )
    ]
    if not made.certain:
        lines.append(words["close"])
    if model.vision:
        lines.append(words["images"])
    if 0 < model.max_positions < made.max_model_len:
        lines.append(words["longer"].format(positions=f"{model.max_positions:,}"))
    return lines


def _nearest(one: Nearest, words: Mapping[str, str]) -> str:
    change = ", ".join(
        words["checkpoint"] if option == "quantization" else f"--{option.replace('_', '-')} {value}".rstrip()
        for option, value in one.changed
    )
    return words["row"].format(change=change, requests=one.account.requests, tokens=f"{one.account.max_model_len:,}")
