"""What a paste is judged to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infradoc.catalog import load_rules
from infradoc.report.model import Report
from infradoc.report.post_mortem import diagnose_artefacts
from infradoc_rules.catalog import Catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The rules."""
    return load_rules()


@pytest.fixture
def pasted(tmp_path: Path, catalog: Catalog) -> Callable[..., Report]:
    """pasted(*lines, lang="en") -> the report on them as one file."""

    def read(*lines: str, lang: str = "en") -> Report:
        path = tmp_path / "server.log"
        path.write_text("\n".join(lines) + "\n")
        return diagnose_artefacts(path, catalog, lang)

    return read
