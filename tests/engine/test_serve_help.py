"""`infradoc serve --help`: every flag says what it does with its default, every fault is named, /admin is explained."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from infradoc_engine.__main__ import make_parser
from infradoc_engine.config import add_arguments
from infradoc_engine.faults.all import FAULTS
from infradoc_engine.faults.board import parse_fault
from infradoc_engine.serve_help import FAULTS as SHOWN
from infradoc_engine.serve_help import epilog


def test_the_faults_are_those_that_there_are() -> None:
    assert list(SHOWN) == list(FAULTS)
    for name, text in SHOWN.items():
        shown = text.partition("(")[2].rstrip(")").replace(": no end", "").split(", ") if "(" in text else []
        given, parameters = parse_fault(f"{name}:{','.join(shown)}")
        assert given == name
        assert parameters == {key: float(p.default) for key, p in FAULTS[name].parameters.items()}


def test_every_flag_says_what_it_does_and_its_default() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for action in parser._actions:
        if "--help" not in action.option_strings:
            text = action.help or ""
            assert len(text) > 20, action.option_strings
            assert "(default" in text or action.option_strings == ["--fault"], action.option_strings
            assert "derived" not in text and "None" not in text, text
    text = parser.format_help()
    assert all(name in " ".join(text.split()) for name in FAULTS)


def test_where_the_token_is_and_how_to_send_it() -> None:
    text = epilog(Path("/run/me"))
    assert "cat /run/me/engine-8000.token" in text and "INFRADOC_ADMIN_TOKEN" in text
    assert "curl" in text and "/admin/config" in text and "If-Match" in text


def test_help_is_quick_and_has_examples() -> None:
    code = (
        "import sys; from infradoc_engine.__main__ import make_parser\n"
        "make_parser(); assert not {'torch', 'starlette', 'tokenizers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)
    serve = next(iter(make_parser()._subparsers._group_actions)).choices["serve"]  # type: ignore[union-attr, index]
    text = serve.format_help()
    assert "infradoc serve --port 8080" in text and "%%" not in text
    assert max(map(len, epilog(Path("/run/user/1000/infradoc")).splitlines())) <= 120
