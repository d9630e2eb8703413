"""Late imports are really late: a fresh interpreter per entry point, and a look at sys.modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "httpx", "textual", "torch")


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    script = f"import sys\n{code}\nprint('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import contextlib, io\n"
        "from infradoc.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        "    sys.argv = ['infradoc', '--help']\n    main()\n"
        "assert 'diagnose' in out.getvalue()"
    )
    assert not loaded_after(code) & set(HEAVY)


@pytest.mark.parametrize("package", ["infradoc", "infradoc_rules", "infradoc_playbooks", "infradoc.monitor.loop"])
def test_the_agent_never_loads_the_engine(package: str) -> None:
    assert not loaded_after(f"import {package}") & {"torch", "triton", "infradoc_engine", "infradoc_kernels"}


def test_the_core_is_standard_library_only() -> None:
    outside = loaded_after("import infradoc_engine.core.scheduler.scheduler") - loaded_after("pass")
    foreign = {m for m in outside if m not in sys.stdlib_module_names and not m.startswith("__editable__")}
    assert foreign <= {"infradoc_engine"}


def test_bare_folders_are_no_packages() -> None:
    """A `kernels` namespace package on sys.path would be taken for the Hugging Face package of that name."""
    names = ("kernels", "engine", "rules")
    loaded_after(f"import importlib.util\nassert all(importlib.util.find_spec(n) is None for n in {names})")
