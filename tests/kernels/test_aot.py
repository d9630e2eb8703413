"""Kernels compile for every target, spill nothing, and need what the committed table says.

Compiles run in a process of their own: in this one Triton interprets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from infradoc_kernels import aot

TABLE = json.loads(aot.TABLE.read_text())


def compile_and_compare(*arguments: str) -> list[dict[str, Any]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "infradoc_kernels.aot", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_first_configuration_of_each_kernel_compiles_for_every_target() -> None:
    rows = compile_and_compare()
    assert {row["kernel"] for row in rows} == {row["kernel"] for row in TABLE["rows"]}
    assert len({(row["kernel"], row["target"]) for row in rows}) == len(rows) == 4 * len({r["kernel"] for r in rows})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_configurations_compile_for_every_target() -> None:
    rows = compile_and_compare("--all")
    key = ("kernel", "configuration", "target")
    assert sorted([row[k] for k in key] for row in rows) == sorted([row[k] for k in key] for row in TABLE["rows"])


def test_the_table_holds_every_shipped_configuration_and_no_other() -> None:
    shipped = [
        (kernel, one.name, target)
        for target in aot.TARGETS
        for kernel, entries in aot.configurations(target).items()
        for one in entries
    ]
    rows = [(row["kernel"], row["configuration"], row["target"]) for row in TABLE["rows"]]
    assert sorted(rows) == sorted(shipped)
    assert len(rows) == len(set(rows))


def test_the_table_itself_shows_no_spill_and_fits() -> None:
    assert aot.complaints(TABLE["rows"], TABLE) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"registers": 1}, "registers 32 -> 1"),
        ({"spill_bytes": 8}, "spills 8 bytes"),
        ({"local_bytes": 4}, "4 in local memory"),
        ({"shared_bytes": 1 << 20}, "more than there is"),
        ({"configuration": "none"}, "is not in resources.json"),
    ],
)
def test_a_difference_is_named(changed: dict[str, Any], complaint: str) -> None:
    row = {"kernel": "k", "configuration": "c", "target": "sm_90", "num_warps": 4}
    row |= {"registers": 32, "shared_bytes": 0, "spill_bytes": 0, "local_bytes": 0}
    table = {"triton": aot.triton.__version__, "rows": [row]}
    assert aot.complaints([row], table) == []
    assert any(complaint in sentence for sentence in aot.complaints([row | changed], table))


def test_another_triton_may_take_other_registers_but_may_not_spill() -> None:
    row = dict(TABLE["rows"][0])
    other = TABLE | {"triton": "0.0"}
    assert aot.complaints([row | {"registers": row["registers"] + 1}], other) == []
    assert aot.complaints([row | {"spill_bytes": 4}], other)


def test_arguments_that_do_not_fit_a_kernel_are_named() -> None:
    one = next(iter(aot.configurations("sm_90").values()))[0]
    wrong = aot.AotConfiguration("odd", one.fn, {"x_ptr": "*bf16"}, {}, 4)
    with pytest.raises(ValueError, match=r"odd: signature and constexprs name \['x_ptr'\], the kernel takes"):
        aot.compile_for(wrong, "sm_90")
    with pytest.raises(ValueError, match="target is 'sm_70', it must be one of sm_80"):
        aot.compile_for(one, "sm_70")
