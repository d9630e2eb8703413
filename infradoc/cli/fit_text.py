"""What `infradoc fit` found, as a text for people and as data for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from infradoc.errors import visible
from infradoc_rules.sizing.account import CONTEXT, ERRORS, HELD_OUT, Account
from infradoc_rules.sizing.model import Model
from infradoc_rules.sizing.nearest import Nearest
from infradoc_rules.sizing.setting import Setting, dtype_of, quantization_in
from infradoc_rules.units import GIB


def as_data(
    model: Model, setting: Setting, made: Account, others: list[Nearest], together: list[Nearest]
) -> dict[str, Any]:
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
        "nearest": [_as_row(one) for one in others],
        "combined": [_as_row(one) for one in together],
    }


def _as_row(one: Nearest) -> dict[str, Any]:
    row = {"change": dict(one.changed), "max_model_len": one.account.max_model_len}
    return row | {"requests": round(one.account.requests, 2), "kv_bytes": one.account.kv}


def print_text(
    model: Model,
    setting: Setting,
    made: Account,
    others: list[Nearest],
    together: list[Nearest],
    notes: list[str],
    words: Mapping[str, str],
) -> None:
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
    for line in [*_verdict(model, made, words), *notes]:
        console.print(line)
    if made.problem:
        console.print(words["nearest"] if others else words["together"] if together else words["none"])
    for place, one in enumerate([*others, *together]):
        if place and place == len(others):
            console.print(words["together"])
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
        words[f"checkpoint_{value}"] if option == "quantization" else f"--{option.replace('_', '-')} {value}".rstrip()
        for option, value in one.changed
    )
    return words["row"].format(change=change, requests=one.account.requests, tokens=f"{one.account.max_model_len:,}")
