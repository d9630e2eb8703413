"""The core runs on the standard library alone: a fresh interpreter shows what an import really loads."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib.util import find_spec

_PROBE = """
import importlib, json, sys
before = set(sys.modules)  # what the interpreter's own start loads: site, hooks of editable installs
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def core_modules() -> list[str]:
    package = find_spec("infradoc_engine.core")
    assert package is not None and package.submodule_search_locations
    found = pkgutil.walk_packages(package.submodule_search_locations, "infradoc_engine.core.")
    return ["infradoc_engine.core", *(module.name for module in found)]


def loaded_by(module: str) -> list[str]:
    done = subprocess.run([sys.executable, "-P", "-c", _PROBE, module], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_every_module_loads_only_the_standard_library_and_the_core() -> None:
    modules = core_modules()
    assert len(modules) > 15 and "infradoc_engine.core.scheduler.scheduler" in modules
    for module in modules:
        names = loaded_by(module)
        assert module in names
        own = [n for n in names if n.startswith("infradoc_engine") and not n.startswith("infradoc_engine.core")]
        assert own in ([], ["infradoc_engine"]), module
        foreign = {n.split(".")[0] for n in names} - sys.stdlib_module_names - {"infradoc_engine"}
        assert not foreign, f"{module} loads {sorted(foreign)}"
