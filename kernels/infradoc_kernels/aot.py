"""Ahead-of-time compiles with no GPU at hand: registers, shared memory and spills of every shipped configuration.

`python -P -m infradoc_kernels.aot` compiles the first configuration of each kernel and compares it with the committed
table `resources.json`; `--all` takes all of them; `--write` compiles all and writes the table anew (do that after any
change to a kernel, its settings or the pinned triton, and read the difference). Figures depend on triton's version,
which stands in the table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TABLE = Path(__file__).with_name("resources.json")
MODULES = (
    "kv_cache_write",
    "paged_attention_decode",
    "paged_attention_prefill",
    "rms_norm",
    "rope",
    "silu_and_mul",
    "top_p",
)
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# What one program may ask for. NVIDIA: CUDA programming guide, "technical specifications per compute capability"
# (maximum per thread block); AMD: local data share of a CDNA 3 compute unit.
SHARED_LIMITS = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}


@dataclass(frozen=True)
class AotConfiguration:
    """One shape and type a kernel ships for.

    `signature` names every argument that is no constant: "*bf16", "i32", "i64", "fp32". Pointers count as aligned to
    16 bytes, as torch's allocations are; `divisible` names the integers that are multiples of 16 at such a launch,
    because the just-in-time path specialises on that too. The first configuration of a kernel is the one that the
    default tests compile.
    """

    name: str
    fn: Any  # triton.runtime.JITFunction
    signature: dict[str, str]
    constexprs: dict[str, Any]
    num_warps: int
    num_stages: int = 3
    divisible: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resources:
    """Per thread: registers, spilled and local bytes; per program: shared memory in bytes."""

    registers: int
    shared_bytes: int
    spill_bytes: int
    local_bytes: int


def compile_for(configuration: AotConfiguration, target: str) -> Resources:
    """Compiles for one of TARGETS. Raises ValueError for an unknown target or arguments that do not fit the kernel."""
    if target not in TARGETS:
        raise ValueError(f"target is {target!r}, it must be one of {', '.join(TARGETS)}")
    # Fusing multiply and add is what launches do by default up to Triton 3.9; 3.10 turns it off.
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages, "enable_fp_fusion": True}
    compiled = triton.compile(_source(configuration), target=TARGETS[target], options=options)
    shared = int(compiled.metadata.shared)
    if "cubin" in compiled.asm:
        return _read_cubin(compiled.asm["cubin"], shared)
    return _read_amdgcn(compiled.asm["amdgcn"], shared)


def _source(configuration: AotConfiguration) -> Any:
    names = list(configuration.fn.arg_names)
    given = set(configuration.signature) | set(configuration.constexprs)
    if given != set(names) or len(given) != len(configuration.signature) + len(configuration.constexprs):
        raise ValueError(
            f"{configuration.name}: signature and constexprs name {sorted(given)}, the kernel takes {sorted(names)}"
        )
    signature = {name: configuration.signature.get(name, "constexpr") for name in names}
    aligned = [i for i, name in enumerate(names) if signature[name].startswith("*") or name in configuration.divisible]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    return ASTSource(configuration.fn, signature, constexprs=configuration.constexprs, attrs=attributes)


def _read_cubin(cubin: bytes, shared: int) -> Resources:
    """What the assembler noted in the binary. STACK is where ptxas puts spilled registers; our kernels have no arrays
    of their own on it, so any stack is a spill."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return Resources(found["REG"], shared, found["STACK"], found["LOCAL"])


def _read_amdgcn(text: str, shared: int) -> Resources:
    """From the metadata at the end of the assembly. Spilled scalar registers go to lanes of vector registers, not to
    memory, and are no spill here."""

    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s+(\d+)", text)
        if found is None:
            raise ValueError(f"the AMD assembly does not name .{key}")
        return int(found[1])

    return Resources(number("vgpr_count"), shared, 4 * number("vgpr_spill_count"), number("private_segment_fixed_size"))


def configurations(target: str, modules: Sequence[str] = MODULES) -> dict[str, list[AotConfiguration]]:
    """What ships for a target, by kernel name (without underscores and `_kernel` around it).

    A module whose settings depend on the device says so by `target_configurations(target)`; the others ship the same
    for all, `aot_configurations()`.
    """
    out: dict[str, list[AotConfiguration]] = {}
    for name in modules:
        module = importlib.import_module(f"infradoc_kernels.{name}")
        by_target = getattr(module, "target_configurations", None)
        for one in by_target(target) if by_target else module.aot_configurations():
            out.setdefault(one.fn.__name__.removeprefix("_").removesuffix("_kernel"), []).append(one)
    return out


def measure(everything: bool, modules: Sequence[str] = MODULES) -> Iterator[dict[str, Any]]:
    """Compiles and yields rows of the table: the first configuration of each kernel and target, or all."""
    for target in TARGETS:
        for kernel, entries in configurations(target, modules).items():
            for one in entries if everything else entries[:1]:
                row = {"kernel": kernel, "configuration": one.name, "target": target}
                yield row | {"num_warps": one.num_warps} | asdict(compile_for(one, target))


def complaints(rows: Sequence[dict[str, Any]], table: dict[str, Any]) -> list[str]:
    """Sentences on what is wrong with measured rows: spills, too much shared memory, a difference to the table.

    Registers are compared only under the triton version of the table: another ptxas allocates others.
    """
    known = {_key(row): row for row in table["rows"]}
    out = []
    for row in rows:
        where = " ".join(_key(row))
        if row["spill_bytes"] or row["local_bytes"]:
            out.append(f"{where} spills {row['spill_bytes']} bytes and holds {row['local_bytes']} in local memory")
        if row["shared_bytes"] > SHARED_LIMITS[row["target"]]:
            out.append(f"{where} asks for {row['shared_bytes']} bytes of shared memory, more than there is")
        expected = known.get(_key(row))
        if expected is None:
            out.append(f"{where} is not in {TABLE.name}: run python -P -m infradoc_kernels.aot --write")
        elif table["triton"] == triton.__version__ and expected != row:
            changed = [f"{k} {expected.get(k)} -> {v}" for k, v in row.items() if expected.get(k) != v]
            out.append(f"{where}: {', '.join(changed)}; if meant, run python -P -m infradoc_kernels.aot --write")
    return out


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["kernel"], row["configuration"], row["target"]


def _write(rows: Sequence[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(row) for row in sorted(rows, key=_key))
    TABLE.write_text(f'{{"triton": "{triton.__version__}", "rows": [\n{lines}\n]}}\n')


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares or writes the table; JSON rows on standard output, complaints on standard error; 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -P -m infradoc_kernels.aot",
        description="Compiles the kernels and compares what they need with the table.",
    )
    parser.add_argument("--all", action="store_true", help="all configurations, not only the first of each kernel")
    parser.add_argument("--write", action="store_true", help=f"compile all and write {TABLE.name}")
    parser.add_argument("--module", action="append", choices=MODULES, help="only this module (repeatable)")
    asked = parser.parse_args(arguments)
    if triton.knobs.runtime.interpret:
        parser.error("TRITON_INTERPRET is set, which leaves nothing to compile: unset it")
    modules = asked.module or MODULES
    # A cache of its own: every figure comes from a compile of this run.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        rows = []
        for row in measure(asked.all or asked.write, modules):
            print(json.dumps(row), flush=True)
            rows.append(row)
    if asked.write:
        others = set(MODULES) - set(modules)
        kept = {kernel for target in TARGETS for kernel in configurations(target, sorted(others))}
        old = json.loads(TABLE.read_text())["rows"] if others and TABLE.exists() else []
        _write(rows + [row for row in old if row["kernel"] in kept])
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"triton": triton.__version__, "rows": []}
    wrong = complaints(rows, table)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
