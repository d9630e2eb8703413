"""Late imports are really late: a fresh interpreter per entry point, and a look at sys.modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "httpx", "textual", "torch")
# A case of a post-mortem has 0.4 s: of these each takes 0.02 to 0.2 s of it, and none is needed for text.
UNNEEDED = {*HEAVY, "pydantic", "pydantic_core", "yaml", "rich", "email", "asyncio", "ssl", "sqlite3", "openpyxl"}
LOG = Path(__file__).parents[1] / "data" / "cases" / "a002"


def loaded_after(code: str, **environment: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    script = f"import sys\n{code}\nprint('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    command = [sys.executable, "-P", "-c", script]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**kept, **environment})
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


def test_a_post_mortem_loads_no_parser_and_no_library(tmp_path: Path) -> None:
    """Rules and tables come parsed from the cache, which the first call fills."""
    code = (
        "import contextlib, io\n"
        "from infradoc.cli.app import dispatch\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        f"    dispatch(['diagnose', {str(LOG)!r}, '--format', 'json'])\n"
        "assert 'findings' in out.getvalue()"
    )
    cache = {"XDG_CACHE_HOME": str(tmp_path)}  # where the installation may not be written to
    loaded_after(code, **cache)
    assert not loaded_after(code, **cache) & UNNEEDED


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
