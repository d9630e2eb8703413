"""The same first finding, in whatever form a log or a launch command was copied, exported or mailed."""

from __future__ import annotations

import csv
import html
import io
import json
import random
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from infradoc.report.post_mortem import diagnose_artefacts

SAMPLE = 12  # cases for each form; another dozen for another form
LEAST = 11
# What stood behind that column is gone: how much KV is in use, which process holds the memory.
LEAST_OF = {"cut at 200": 8}

Form = Callable[[str], str | bytes]


def _lines(change: Callable[[str], str]) -> Form:
    """A form that changes line by line."""
    return lambda text: "\n".join(change(line) for line in text.rstrip("\n").split("\n")) + "\n"


def _numbered(change: Callable[[int, str], str]) -> Form:
    return lambda text: (
        "\n".join(change(number, line) for number, line in enumerate(text.rstrip("\n").split("\n"), 1)) + "\n"
    )


def _wrapped(width: int) -> Form:
    """As a terminal of that width shows it, copied by one that does not know which line ends are its own."""
    return _lines(lambda line: "\n".join(line[at : at + width] for at in range(0, max(len(line), 1), width)))


def _mailed(text: str) -> str:
    """As a mail program breaks it: between words, at most 76 columns."""
    out: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        out += textwrap.wrap(line, 76, break_long_words=False, break_on_hyphens=False, drop_whitespace=True) or [""]
    return "\n".join(out) + "\n"


def _records(make: Callable[[int, str], object]) -> Form:
    return _numbered(lambda number, line: json.dumps(make(number, line)))


def _stamp(number: int) -> str:
    return f"2026-03-04T{10 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.{number % 1000:03}000000Z"


def _nanos(number: int) -> str:
    return str(1_772_618_400_000_000_000 + number * 1_000_000_000)


def _document(make: Callable[[list[str]], object]) -> Form:
    return lambda text: json.dumps(make(text.rstrip("\n").split("\n")), indent=1)


def _csv(text: str) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(["@timestamp", "kubernetes.pod_name", "message"])
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        writer.writerow([_stamp(number), "llm-0", line])
    return out.getvalue()


def _rtf(text: str) -> str:
    body = text.replace("\\", "\\\\").replace("{", "\\{").replace("}", "\\}").replace("\t", "\\tab ")
    body = "".join(char if ord(char) < 128 else f"\\u{ord(char)}?" for char in body).replace("\n", "\\\n")
    return (
        "{\\rtf1\\ansi\\ansicpg1252\\cocoartf2639\n{\\fonttbl\\f0\\fmodern\\fcharset0 Menlo-Regular;}\n"
        "{\\colortbl;\\red255\\green255\\blue255;}\n\\paperw11900\\margl1440\n\\f0\\fs22 \\cf0 " + body + "}\n"
    )


def _issue(text: str) -> str:
    return (
        "### Your current environment\n\n<details>\n<summary>The output of <code>collect_env.py</code></summary>\n\n"
        "```text\nYour output of `python collect_env.py` here\n```\n\n</details>\n\n\n### 🐛 Describe the bug\n\n"
        f"<details>\n<summary>log</summary>\n\n```shell\n{text.rstrip()}\n```\n\n</details>\n\n"
        "### Before submitting a new issue...\n\n- [x] Make sure you already searched for relevant issues.\n"
    )


def _slack(text: str) -> str:
    """A paste in pieces, with names and times between them."""
    out, block = [], []
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        block.append(line)
        if number % 9 == 0:
            out += [f"Jane Miller  {9 + number % 3}:{number % 60:02} AM", *block, ""]
            block = []
    return "\n".join([*out, "sam.k  [11:02 AM]", *block, ":eyes: 2", "thanks, looking"]) + "\n"


def _typescript(text: str) -> str:
    """As `script` records a terminal."""
    body = "".join(f"\x1b[32m{line[:9]}\x1b[0m{line[9:]}\x1b[K\r\n" for line in text.rstrip("\n").split("\n"))
    return (
        'Script started on 2026-03-04 10:00:00+00:00 [TERM="xterm-256color" TTY="/dev/pts/1" COLUMNS="200"]\n'
        "\x1b[?2004h\x1b]0;ops@gpu-7: ~\x07\x1b[01;32mops@gpu-7\x1b[00m:\x1b[01;34m~\x1b[00m$ cat it\r\n\x1b[?2004l\r"
        + body
        + '\x1b[?2004hops@gpu-7:~$ exit\r\n\nScript done on 2026-03-04 10:02:00+00:00 [COMMAND_EXIT_CODE="0"]\n'
    )


def _bars(text: str) -> str:
    """Progress bars that share a line with what was logged while they ran."""
    out = []
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        bar = "".join(
            f"\rLoading safetensors checkpoint shards:  {step}0% | {step}/10 [00:0{step}<00:01]" for step in (1, 4)
        )
        if number % 4 == 0:
            out.append(f"{bar}\r{line}")
        elif number % 4 == 2:
            out.append(f"{line}{bar}")
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def _notebook(text: str) -> str:
    lines = text.splitlines(keepends=True)
    cell = {
        "cell_type": "code",
        "outputs": [{"name": "stdout", "output_type": "stream", "text": lines}],
        "source": ["1"],
    }
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _cast(text: str) -> str:
    head = json.dumps({"version": 2, "width": 200, "height": 50, "timestamp": 1772618400})
    return "\n".join(
        [head, *(json.dumps([0.1 * at, "o", line + "\r\n"]) for at, line in enumerate(text.rstrip("\n").split("\n")))]
    )


def _diff(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    head = [
        "diff --git a/run b/run",
        "new file mode 100644",
        "--- /dev/null",
        "+++ b/run",
        f"@@ -0,0 +1,{len(lines)} @@",
    ]
    return "\n".join([*head, *(f"+{line}" for line in lines)]) + "\n"


def _unstamped(line: str) -> str:
    return re.sub(r"^(\W?)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* ?|(?<=[A-Z] )\d\d-\d\d \d\d:\d\d:\d\d ", r"\1", line)


def _interleaved(text: str) -> str:
    """Of two pods, one of them healthy and silent but for its probes."""
    rng = random.Random(len(text))
    out = []
    for line in text.rstrip("\n").split("\n"):
        out.append(f"[pod/llm-0/server] {line}")
        if rng.random() < 0.3:
            out.append('[pod/proxy-7d9f4/proxy] 10.0.0.1 "GET /healthz HTTP/1.1" 200')
    return "\n".join(out) + "\n"


def _syslog(number: int, line: str) -> str:
    return f"Mar  4 10:{number // 60 % 60:02}:{number % 60:02} gpu-7 llm-serve[4711]: {line}"


# What a collector writes, around the lines of a log.
OF_LOGS: dict[str, Form] = {
    "docker json-file": _records(lambda n, line: {"log": line + "\n", "stream": "stderr", "time": _stamp(n)}),
    "kubectl logs --prefix": _lines(lambda line: f"[pod/llm-0/server] {line}"),
    "kubectl, two pods": _interleaved,
    "stern": _lines(lambda line: f"llm-5d8f9c7b6-x2x4z server {line}"),
    "docker compose logs": _lines(lambda line: f"llm-1  | {line}"),
    "journalctl -o json": _records(
        lambda n, line: {
            "__REALTIME_TIMESTAMP": _nanos(n)[:16],
            "_PID": "4711",
            "PRIORITY": "6",
            "_HOSTNAME": "gpu-7",
            "MESSAGE": line,
        }
    ),
    "journalctl": _numbered(_syslog),
    "journalctl -o short-iso": _numbered(lambda n, line: f"{_stamp(n)[:19]}+0000 gpu-7 llm-serve[4711]: {line}"),
    "Loki export": _document(
        lambda lines: [
            {"line": line, "timestamp": _nanos(n), "date": _stamp(n), "fields": {"app": "llm"}}
            for n, line in enumerate(lines, 1)
        ]
    ),
    "Loki API": _document(
        lambda lines: {
            "status": "success",
            "data": {
                "resultType": "streams",
                "result": [
                    {"stream": {"app": "llm"}, "values": [[_nanos(n), one] for n, one in enumerate(lines, 1)][::-1]}
                ],
            },
        }
    ),
    "ELK export": _document(
        lambda lines: {
            "took": 7,
            "hits": {
                "total": {"value": len(lines)},
                "hits": [
                    {"_index": "logs", "_id": str(n), "_source": {"@timestamp": _stamp(n), "message": line}}
                    for n, line in enumerate(lines, 1)
                ],
            },
        }
    ),
    "Cloud Logging": _document(
        lambda lines: [
            {"textPayload": line, "timestamp": _stamp(n), "severity": "ERROR", "resource": {"type": "k8s_container"}}
            for n, line in enumerate(lines, 1)
        ]
    ),
    "CloudWatch": _document(
        lambda lines: {"events": [{"timestamp": int(_nanos(n)[:13]), "message": one} for n, one in enumerate(lines, 1)]}
    ),
    "fluentd": _records(lambda n, line: {"ts": float(_nanos(n)) / 1e9, "level": "info", "msg": line}),
    "CSV": _csv,
    "syslog, host first": _numbered(lambda n, line: f"gpu-7 | {_syslog(n, line)}"),
    "ts": _numbered(lambda n, line: f"Mar 04 10:{n // 60 % 60:02}:{n % 60:02} {line}"),
    "pdsh": _lines(lambda line: f"gpu-7: {line}"),
    "mpirun --tag-output": _lines(lambda line: f"[1,0]<stdout>:{line}"),
    "list of lines": lambda text: repr(text.splitlines()),
    "no stamps": _lines(_unstamped),
    "progress bars": _bars,
}

# What people do when they copy: any file.
OF_ALL: dict[str, Form] = {
    "terminal of 80": _wrapped(80),
    "terminal of 120": _wrapped(120),
    "mail of 76": _mailed,
    "repr": lambda text: repr(text),
    "repr of bytes": lambda text: repr(text.encode()),
    "JSON string": lambda text: json.dumps(text),
    "JSON field": lambda text: json.dumps({"stdout": text, "returncode": 1}),
    "notebook": _notebook,
    "asciinema": _cast,
    "GitHub issue": _issue,
    "Slack": _slack,
    "Notepad, UTF-16": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "RTF": _rtf,
    "cat -n": _numbered(lambda n, line: f"{n:6}\t{line}"),
    "less -N": _numbered(lambda n, line: f"{n:7} {line}"),
    "grep -n": _numbered(lambda n, line: f"{n}:{line}"),
    "grep -Hn": _numbered(lambda n, line: f"logs/it.txt:{n}:{line}"),
    "script": _typescript,
    "YAML block": lambda text: "output: |\n" + "".join(f"\t{line}\n" for line in text.rstrip("\n").split("\n")),
    "quoted mail": lambda text: (
        "On Tue, Jo wrote:\n" + "".join(f">> {line}\n" for line in text.rstrip("\n").split("\n"))
    ),
    "diff": _diff,
    "plus": _lines(lambda line: f"+ {line}"),
    "cut at 200": _lines(lambda line: line if len(line) <= 200 else line[:197] + "..."),
    "HTML": lambda text: f"<!DOCTYPE html><html><body><pre>{html.escape(text)}</pre></body></html>\n",
    "Jira": lambda text: f"Hi,\n{{noformat}}\n{text.rstrip()}\n{{noformat}}\nregards\n",
    "double spaced": _lines(lambda line: line + "\n"),
    "tabs for blanks": _lines(lambda line: re.sub(r"^ +", lambda found: "\t" * ((len(found[0]) + 3) // 4), line)),
    "not indented": _lines(str.lstrip),
}


def _copy(case: Path, out: Path, form: Form, only_logs: bool) -> None:
    for path in sorted(case.iterdir()):
        text = path.read_text(errors="replace")
        if path.name == "label.yaml":
            continue
        changed = form(text) if path.suffix == ".log" or not only_logs else text
        (out / path.name).write_bytes(changed if isinstance(changed, bytes) else changed.encode())


def _first(path: Path, catalog) -> str | None:
    found = diagnose_artefacts(path, catalog)["findings"]
    return next((one["id"] for one in found if one["severity"] != "info"), None)


@pytest.fixture(scope="module")
def straight(cases_dir, catalog):
    """Case -> the first finding on its artefacts as they are."""
    cases = sorted(path.parent for path in cases_dir.glob("*/label.yaml"))
    return {case: _first(case, catalog) for case in cases}


def _sampled(cases: Iterable[Path], name: str) -> list[Path]:
    return random.Random(name).sample(sorted(cases), SAMPLE)


@pytest.mark.parametrize("name", [*OF_LOGS, *OF_ALL])
def test_the_verdict_stays(name, straight, catalog, tmp_path):
    changed = {}
    for case in _sampled(straight, name):
        out = tmp_path / case.name
        out.mkdir()
        _copy(case, out, OF_LOGS.get(name) or OF_ALL[name], name in OF_LOGS)
        now = _first(out, catalog)
        if now != straight[case]:
            changed[case.name] = (straight[case], now)
    assert SAMPLE - len(changed) >= LEAST_OF.get(name, LEAST), "\n".join(
        f"{case}: {was} became {now}" for case, (was, now) in changed.items()
    )
