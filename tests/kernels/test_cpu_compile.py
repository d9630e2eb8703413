"""How the compiled CPU kernels are kept and launched: what a fresh process makes of its cache, its memory and numba."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from infradoc_kernels.cpu import compile

KERNELS = """
import torch
from infradoc_kernels import ops
from infradoc_kernels.reference import argmax, rms_norm, silu_and_mul

torch.set_num_threads(2)
generator = torch.Generator().manual_seed(0)
x, weight = torch.randn(64, 2048, generator=generator), torch.randn(2048, generator=generator)
for _ in range(20):
    torch.testing.assert_close(ops.silu_and_mul(x), silu_and_mul.silu_and_mul(x), atol=1e-5, rtol=1e-5)
    ours, theirs = ops.rms_norm(x, weight, 1e-5, x), rms_norm.rms_norm(x, weight, 1e-5, x)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert torch.equal(ops.argmax(x), argmax.argmax(x))
    heads = torch.randn(64, 15, 64, generator=generator)
    cos, sin = ops.rope_angles(64, 1e4, 64)
    caches = torch.zeros(2, 4, 3, 16, 64)
    values = heads[:, 12:].clone()
    ops.rope_kv_write(heads, 9, cos, sin, caches[0], caches[1], torch.arange(64))
    assert torch.equal(caches[1].transpose(1, 2).reshape(64, 3, 64), values)
print("right")
"""


def nothing(args: Any) -> None:
    """A kernel that is compiled in no time."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def found(*constants: int) -> bool:
    """Compiles the kernel; whether its code was in the cache."""
    assert compile.body(*constants)(nothing)
    return bool(compile._KEPT[-1].cache_hits)


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_team_reads_no_memory_that_was_given_back() -> None:
    """glibc overwrites what is freed: arguments that a kernel reads after that would send it anywhere."""
    assert run(KERNELS, GLIBC_TUNABLES="glibc.malloc.perturb=85:glibc.malloc.tcache_count=0") == "right"


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_cache_that_cannot_be_read_is_made_anew(cache: Path, suffix: str) -> None:
    assert (found(), found()) == (False, True)
    files = list(cache.rglob(f"*{suffix}"))
    for file in files:
        file.write_bytes(file.read_bytes()[:40])
    assert files and (found(), found()) == (False, True)


def test_a_cache_that_takes_nothing_is_done_without(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_save_data", full)
    assert (found(), found()) == (False, False)


def test_kernels_of_other_constants_have_files_of_their_own(cache: Path) -> None:
    """Two processes may write an index at once: the code of one must not come to stand behind the key of another."""
    assert (found(64, 3), found(128, 3), found(64, 3)) == (False, False, True)
    assert len(list(cache.rglob("*.nbi"))) == 2


@pytest.mark.parametrize("error", ["ImportError('Numba needs NumPy 1 or less')", "OSError('libllvmlite.so: cut off')"])
def test_numba_that_refuses_its_import_is_as_none(tmp_path: Path, error: str) -> None:
    (tmp_path / "numba.py").write_text(f"raise {error}\n")
    code = """
import torch
from infradoc_kernels import ops
ops.warm_up(9, 3, 64, torch.float32, torch.device("cpu"))
ops.rms_norm(torch.ones(2, 8), torch.ones(8), 1e-5)
print(ops.is_compiled(torch.device("cpu"), torch.float32))
"""
    assert run(code, PYTHONPATH=str(tmp_path)) == "False"
