"""All cases as copies that lost something or had something mixed in: the same first finding, or none, never another."""

from __future__ import annotations

import csv
import io
import json
import quopri
import random
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from infradoc.report.post_mortem import diagnose_artefacts

Form = Callable[[str], str | bytes]
Verdict = tuple[str | None, str]
Verdicts = dict[Path, Verdict]
Changed = dict[str, tuple[Verdict, Verdict]]

SAMPLE = 12  # cases for each form; another dozen for another form. The slow test takes all.


def _lines(change: Callable[[str], str]) -> Form:
    return lambda text: "\n".join(change(line) for line in text.rstrip("\n").split("\n")) + "\n"


def _numbered(change: Callable[[int, str], str]) -> Form:
    return lambda text: (
        "\n".join(change(number, line) for number, line in enumerate(text.rstrip("\n").split("\n"), 1)) + "\n"
    )


def _cut(width: int, mark: str = "") -> Form:
    return _lines(lambda line: line if len(line) <= width else line[: width - len(mark)] + mark)


def _stamp(number: int) -> str:
    return f"2026-03-04T{10 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.{number % 1000:03}"


def _nanos(number: int) -> str:
    return str(1_772_618_400_000_000_000 + number * 1_000_000_000)


# (a) Lines that end at a column, and what stood behind it is gone.


def _pane(text: str) -> str:
    """What fits on the last screens of a terminal of 200 columns that does not wrap: cut, and blanks filled up."""
    return "\n".join(line[:200].ljust(200) for line in text.rstrip("\n").split("\n")) + "\n"


# (b) Mail programs.


def _quoted_printable(text: str) -> str:
    return quopri.encodestring(text.encode(), quotetabs=True).decode()


def _quoted_printable_soft(text: str) -> str:
    head = (
        "From: Jo <jo@example.org>\nSubject: it broke\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n"
        "Content-Transfer-Encoding: quoted-printable\n\nHi,\n\n"
    )
    return head + quopri.encodestring(text.encode()).decode()


def _flowed(text: str) -> str:
    """RFC 3676: a line that goes on ends in a blank, one that begins with a blank or > is stuffed."""
    out = []
    for line in text.rstrip("\n").split("\n"):
        stuffed = f" {line}" if line[:1] in (" ", ">") or line.startswith("From ") else line
        words = re.findall(r"\S+ *|^ +", stuffed)
        row = ""
        for word in words:
            if row and len(row) + len(word.rstrip()) > 72:
                out.append(row)
                row = ""
            row += word
        out.append(row.rstrip())
    return "\n".join(out) + "\n"


def _two_depths(text: str) -> str:
    """A mail that was answered twice: half of it is quoted once, half twice."""
    lines = text.rstrip("\n").split("\n")
    half = len(lines) // 2
    return (
        "Thanks, see below.\n\nOn Wed, Mar 4, 2026 Jo wrote:\n> I have this, too.\n>\n> On Tue, Mar 3, 2026 Al wrote:\n"
        + "".join(f">> {line}\n" for line in lines[:half])
        + "".join(f"> > {line}\n" for line in lines[half:])
        + ">\n> Regards, Jo\n"
    )


def _hard_blanks(text: str) -> str:
    return re.sub(r"  |(?<=:) ", lambda found: "\u00a0" * len(found[0]), text)


def _tabs_to_blanks(text: str) -> str:
    return text.expandtabs(4)


def _smart(text: str) -> str:
    """What a word processor makes of quotes, dashes and dots."""
    text = re.sub(r"(?<![\w])\"|(?<=[=(\[{ ])\"", "\u201c", text).replace('"', "\u201d")
    text = re.sub(r"(?<![\w])'", "\u2018", text).replace("'", "\u2019")
    return text.replace("--", "\u2013").replace("...", "\u2026")


def _smart_dash(text: str) -> str:
    return text.replace("--", "\u2014").replace('"', "\u201d")


def _no_indent(text: str) -> str:
    return "\n".join(line.strip() for line in text.rstrip("\n").split("\n")) + "\n"


def _squeezed(text: str) -> str:
    """As HTML shows what is not preformatted: runs of blanks are one."""
    return "\n".join(" ".join(line.split()) for line in text.rstrip("\n").split("\n")) + "\n"


# (c) Newest line first.


def _newest_first(text: str) -> str:
    return "\n".join(reversed(text.rstrip("\n").split("\n"))) + "\n"


def _two_pods(text: str) -> str:
    """With the lines of a proxy between those of the server."""
    rng = random.Random(len(text))
    out = []
    for line in text.rstrip("\n").split("\n"):
        out.append(f"[pod/llm-0/server] {line}")
        if rng.random() < 0.3:
            out.append('[pod/proxy-7d9f4/proxy] 10.0.0.1 "GET /healthz HTTP/1.1" 200')
    return "\n".join(out)


def _newest_numbered(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return "\n".join(f"{_stamp(n)}Z {line}" for n, line in reversed(list(enumerate(lines, 1)))) + "\n"


# (d) Web pages.


def _github_gutter(text: str) -> str:
    """Each number on a line of its own above the line that it counts."""
    return "".join(f"{n}\n{line}\n" for n, line in enumerate(text.rstrip("\n").split("\n"), 1))


def _raw_page(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return (
        "Skip to content\nSign in\nraw\ngistfile1.txt\n"
        + f"{len(lines)} lines ({len(lines)} loc) · 12.3 KB\n"
        + "".join(f"{n}\t{line}\n" for n, line in enumerate(lines, 1))
        + "Footer\n© 2026 GitHub, Inc.\nTerms\nPrivacy\n"
    )


def _copy_code(text: str) -> str:
    return f"bash\nCopy code\n{text.rstrip()}\nCopy code\nWhat could be wrong here?\n"


def _elided(text: str) -> str:
    """Copies that leave out what repeats; here nothing is missing, but the marks stand between lines."""
    rng = random.Random(len(text))
    marks = ["[...]", "... 1234 lines omitted ...", "...", "<snip>", "[truncated]", "(same for the other ranks)"]
    out = []
    for line in text.rstrip("\n").split("\n"):
        if rng.random() < 0.1 and line[:1] not in (" ", "\t", ""):
            out.append(rng.choice(marks))
        out.append(line)
    return "\n".join(out) + "\n"


def _emoji(text: str) -> str:
    rng = random.Random(len(text))
    return _lines(lambda line: f"{rng.choice('✅❌⚠🔥🚀')} {line}" if line[:1].isalnum() else line)(text)


def _chat(text: str) -> str:
    return (
        "🐛 **vLLM does not start** ❌\n\n<details><summary>Log (click to expand)</summary>\n\n```console\n"
        f"$ ./serve\n{text.rstrip()}\n```\n\n</details>\n\n👍 3  👀 1\n\nAlso tried `--enforce-eager`, no change.\n"
    )


# (e) Issue templates.

_ENVIRONMENT = """\
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
GCC version                  : (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Clang version                : Could not collect
CMake version                : version 4.0.0
Libc version                 : glibc-2.35

==============================
       PyTorch Info
==============================
Is debug build               : False
ROCM used to build PyTorch   : N/A

==============================
      Python Environment
==============================
Python version               : 3.12.10 (main, Apr  9 2025, 08:55:05) [GCC 11.4.0] (64-bit runtime)
Python platform              : Linux-5.15.0-136-generic-x86_64-with-glibc2.35

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
cuDNN version                : Could not collect
HIP runtime version          : N/A
MIOpen runtime version       : N/A
Is XNNPACK available         : True

==============================
Versions of relevant libraries
==============================
[pip3] numpy==2.2.6
[pip3] nvidia-nccl-cu12==2.26.2
[conda] Could not collect

==============================
         vLLM Info
==============================
ROCM Version                 : Could not collect
Neuron SDK Version           : N/A
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled

==============================
     Environment Variables
==============================
PYTORCH_NVML_BASED_CUDA_CHECK=1
TORCHINDUCTOR_COMPILE_THREADS=1
"""
_CHECKLIST = """\
### Before submitting a new issue...

- [x] Make sure you already searched for relevant issues, and asked the chatbot living at the bottom right corner of the
 [documentation page](https://docs.vllm.ai/en/latest/), which can answer lots of frequently asked questions.
"""
_SGLANG_CHECKLIST = """\
### Checklist

- [x] 1. I have searched related issues but cannot get the expected help.
- [x] 2. The bug has not been fixed in the latest version.
- [ ] 3. Please note that if the bug-related issue you submitted lacks corresponding environment info and a minimal
 reproducible demo, it will be challenging for us to reproduce and resolve the issue, reducing the likelihood of
 receiving feedback.
- [x] 4. If the issue you raised is not a bug but a question, please raise a discussion.
- [ ] 5. Please use English, otherwise it will be closed.

"""


def _vllm_issue(text: str) -> str:
    return (
        "### Your current environment\n\n<details>\n<summary>The output of <code>python collect_env.py</code></summary>"
        f"\n\n```text\n{_ENVIRONMENT}```\n\n</details>\n\n### 🐛 Describe the bug\n\n"
        "A clear and concise description of what the bug is. If relevant, add a minimal example so that we can "
        "reproduce the error by running the code, for example an OOM or a timeout.\n\n"
        f"```text\n{text.rstrip()}\n```\n\n{_CHECKLIST}"
    )


def _empty_template(text: str) -> str:
    return (
        "### Your current environment\n\n```text\nThe output of `python collect_env.py`\nYour output of `python "
        "collect_env.py` here\n```\n\n### How would you like to use vllm\n\nI want to run inference of a [specific "
        "model](put link here). I don't know how to integrate it with vllm.\n\n"
        f"{text.rstrip()}\n\n### Error message\n\n_No response_\n\n{_CHECKLIST}"
    )


def _sglang_issue(text: str) -> str:
    return (
        f"{_SGLANG_CHECKLIST}### Describe the bug\n\nA clear and concise description of what the bug is.\n\n```\n"
        f"{text.rstrip()}\n```\n\n### Reproduction\n\nWhat command or script did you run? Which **model** are you "
        "using?\n\n### Environment\n\nPlease provide necessary environment information here with `python3 -m "
        "sglang.check_env`. Otherwise the issue will be closed.\n"
    )


# (f) Collectors.


def _kubectl(number: int, line: str) -> str:
    return f"[pod/llm-7d9f4c6b5-x2x4z/server] {_stamp(number)}123456Z {line}"


def _colour_bar(line: str) -> str:
    return f"\x1b[36mllm-1      |\x1b[0m {line}"


def _gcp(number: int, line: str) -> dict[str, object]:
    return {
        "insertId": f"a{number}",
        "jsonPayload": {"message": line, "pid": 7},
        "labels": {"k8s-pod/app": "llm"},
        "logName": "projects/x/logs/stderr",
        "receiveTimestamp": f"{_stamp(number)}Z",
        "resource": {"type": "k8s_container", "labels": {"container_name": "server"}},
        "severity": "ERROR",
        "timestamp": f"{_stamp(number)}Z",
    }


def _table(header: list[str], row: Callable[[int, str], list[str]], newest_first: bool = False) -> Form:
    def form(text: str) -> str:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(header)
        rows = [row(number, line) for number, line in enumerate(text.rstrip("\n").split("\n"), 1)]
        writer.writerows(rows[::-1] if newest_first else rows)
        return out.getvalue()

    return form


def _document(make: Callable[[list[str]], object]) -> Form:
    return lambda text: json.dumps(make(text.rstrip("\n").split("\n")), indent=1)


# (g) Terminals.


def _powershell(text: str) -> bytes:
    """`cmd > file 2>&1` of PowerShell 5: UTF-16, CRLF, and what went to stderr as an error of its own."""
    lines = text.rstrip("\n").split("\n")
    head = [
        f"docker.exe : {lines[0]}",
        "At C:\\llm\\serve.ps1:3 char:1",
        "+ docker logs llm > out.txt 2>&1",
        "+ ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~",
        f"    + CategoryInfo          : NotSpecified: ({lines[0][:60]}:String) [], RemoteException",
        "    + FullyQualifiedErrorId : NativeCommandError",
        " ",
    ]
    return b"\xff\xfe" + "\r\n".join([*head, *lines[1:], ""]).encode("utf-16-le")


def _overtyped(text: str) -> str:
    """`script`: what was typed, mistyped and rubbed out, and a cursor that moves."""
    body = "".join(f"{line[:7]}x\b \b{line[7:]}\x1b[0K\r\n" for line in text.rstrip("\n").split("\n"))
    return (
        'Script started on 2026-03-04 10:00:00+00:00 [TERM="xterm" TTY="/dev/pts/1" COLUMNS="200" LINES="50"]\n'
        "ops@gpu-7:~$ dcoker\b\b\b\b\bocker logs llm\r\n" + body + "ops@gpu-7:~$ exit\r\n\nScript done on 2026-03-04\n"
    )


def _cursor(text: str) -> str:
    """A program that places each line, and blanks that are moves of the cursor to the right."""
    return "".join(
        "\x1b[2K\x1b[1G" + re.sub(r" {3,}", lambda found: f"\x1b[{len(found[0])}C", line) + "\n"
        for line in text.rstrip("\n").split("\n")
    )


def _captured(width: int) -> Form:
    """`tmux capture-pane -p`: a wrapped line is several, each without the blanks at its end."""

    def form(text: str) -> str:
        rows = []
        for line in text.rstrip("\n").split("\n"):
            line = line.expandtabs(8)
            rows += [line[at : at + width].rstrip() for at in range(0, max(len(line), 1), width)]
        return "\n".join(rows) + "\n"

    return form


LOGS: dict[str, Form] = {
    "newest first": _newest_first,
    "newest first, two pods": lambda text: _newest_first(_two_pods(text)),
    "newest first, stamped": _newest_numbered,
    "kubectl logs --prefix --timestamps": _numbered(_kubectl),
    "stern": _lines(lambda line: f"\x1b[38;5;2mllm-7d9f4c6b5-x2x4z\x1b[0m \x1b[38;5;4mserver\x1b[0m {line}"),
    "stern --timestamps": _numbered(lambda n, line: f"llm-7d9f4c6b5-x2x4z server {_stamp(n)}123456Z {line}"),
    "docker compose, colours": _lines(_colour_bar),
    "journalctl -o short-iso": _numbered(lambda n, line: f"{_stamp(n)[:19]}+0000 gpu-7 vllm[4711]: {line}"),
    "journalctl -o short-precise": _numbered(
        lambda n, line: f"Mar 04 10:{n // 60 % 60:02}:{n % 60:02}.{n % 1000:03}000 gpu-7 vllm[4711]: {line}"
    ),
    "journalctl -o json": _numbered(
        lambda n, line: json.dumps(
            {"__REALTIME_TIMESTAMP": _nanos(n)[:16], "_COMM": "python3", "MESSAGE": line, "PRIORITY": "3"}
        )
    ),
    "journalctl -o cat, json-pretty": _numbered(
        lambda n, line: json.dumps(
            {"__REALTIME_TIMESTAMP": _nanos(n)[:16], "_PID": "4711", "MESSAGE": line, "PRIORITY": "3"}, indent="\t"
        )
    ),
    "Datadog CSV": _table(
        ["Date", "Host", "Service", "Content"], lambda n, line: [f"{_stamp(n)}Z", "gpu-7", "llm", line], True
    ),
    "Datadog API": _document(
        lambda lines: {
            "data": [
                {
                    "id": f"A{n}",
                    "type": "log",
                    "attributes": {
                        "timestamp": f"{_stamp(n)}Z",
                        "host": "gpu-7",
                        "service": "llm",
                        "status": "info",
                        "message": line,
                        "attributes": {"a": 1},
                    },
                }
                for n, line in reversed(list(enumerate(lines, 1)))
            ]
        }
    ),
    "CloudWatch CSV": _table(["timestamp", "message"], lambda n, line: [_nanos(n)[:13], line]),
    "CloudWatch Insights CSV": _table(
        ["@timestamp", "@message", "@logStream"],
        lambda n, line: [_stamp(n).replace("T", " "), line, "llm/server/1"],
        True,
    ),
    "aws logs tail": _numbered(lambda n, line: f"{_stamp(n)}000+00:00 llm/server/0a1b2c3d4e5f {line}"),
    "logcli": _numbered(lambda n, line: f'{_stamp(n)[:19]}Z {{app="llm", namespace="prod", pod="llm-0"}} {line}'),
    "logcli -o jsonl": _numbered(
        lambda n, line: json.dumps({"labels": {"app": "llm"}, "line": line, "timestamp": f"{_stamp(n)}Z"})
    ),
    "GCP JSON": _document(lambda lines: [_gcp(n, line) for n, line in reversed(list(enumerate(lines, 1)))]),
    "GCP JSON lines": _numbered(lambda n, line: json.dumps(_gcp(n, line))),
    "gcloud, YAML": _numbered(
        lambda n, line: (
            f"---\ninsertId: a{n}\nlogName: projects/x/logs/stderr\nseverity: ERROR\n"
            f"textPayload: {json.dumps(line)}\ntimestamp: '{_stamp(n)}Z'"
        )
    ),
}

ALL: dict[str, Form] = {
    "cut at 80": _cut(80),
    "cut at 100": _cut(100),
    "cut at 120": _cut(120),
    "cut at 132": _cut(132),
    "cut at 160": _cut(160),
    "cut at 200": _cut(200),
    "cut at 200 with ...": _cut(200, "..."),
    "cut at 120 with …": _cut(120, "\u2026"),
    "less -S": _cut(120, ">"),
    "pane of 200": _pane,
    "quoted-printable": _quoted_printable,
    "quoted-printable, soft breaks": _quoted_printable_soft,
    "format=flowed": _flowed,
    "quoted at two depths": _two_depths,
    "quoted and broken": lambda text: "".join(
        f"> {part}\n"
        for line in text.rstrip("\n").split("\n")
        for part in textwrap.wrap(line, 74, break_long_words=False, break_on_hyphens=False) or [""]
    ),
    "non-breaking blanks": _hard_blanks,
    "tabs to blanks": _tabs_to_blanks,
    "smart quotes": _smart,
    "long dashes": _smart_dash,
    "no indentation": _no_indent,
    "blanks squeezed": _squeezed,
    "GitHub gutter": _github_gutter,
    "raw page": _raw_page,
    "Copy code": _copy_code,
    "elided": _elided,
    "emoji": _emoji,
    "chat": _chat,
    "vLLM issue": _vllm_issue,
    "empty template": _empty_template,
    "SGLang issue": _sglang_issue,
    "PowerShell": _powershell,
    "overtyped": _overtyped,
    "cursor moves": _cursor,
    "tmux of 80": _captured(80),
    "tmux of 120": _captured(120),
    "tmux of 200": _captured(200),
}


def _copy(case: Path, out: Path, form: Form, only_logs: bool) -> None:
    for path in sorted(case.iterdir()):
        if path.name == "label.yaml":
            continue
        text = path.read_text(errors="replace")
        changed = form(text) if path.suffix == ".log" or not only_logs else text
        (out / path.name).write_bytes(changed if isinstance(changed, bytes) else changed.encode())


def _verdict(path: Path, catalog) -> Verdict:
    """The first finding, and the status."""
    report = diagnose_artefacts(path, catalog)
    return next((one["id"] for one in report["findings"] if one["severity"] != "info"), None), report["status"]


# What an expert could still read of each; elsewhere all 84 keep their verdict. "Read" is a right first finding, or that
# nothing was wrong; what is not read must come out as "cannot tell".
READ = {
    "cut at 80": 23,
    "cut at 100": 33,
    "cut at 120": 45,
    "cut at 132": 52,
    "cut at 160": 55,
    "cut at 200": 70,
    "cut at 200 with ...": 64,
    "cut at 120 with …": 42,
    "less -S": 42,
    "pane of 200": 70,
    "newest first": 83,
    "newest first, two pods": 83,
    "format=flowed": 83,
    "quoted and broken": 81,
    "no indentation": 82,
    "blanks squeezed": 81,
    "elided": 83,
    "vLLM issue": 83,
    "empty template": 83,
    "SGLang issue": 83,
    "tmux of 80": 80,
    "tmux of 120": 83,
    "tmux of 200": 83,
}
# Copies that say something else, and nothing in them shows that they do: a queue that drains read backwards fills,
# samples of a table that lost its columns leave its last word, a table that a mail program broke is none.
MISREAD = {
    "newest first": {"b069"},
    "newest first, two pods": {"b069"},
    "format=flowed": {"b037"},
    "quoted and broken": {"a011", "a072", "b037"},
    "blanks squeezed": {"a072"},
    "elided": {"a072"},
    "tmux of 80": {"a072"},
}


@pytest.fixture(scope="module")
def straight(cases_dir, catalog):
    """Case -> the verdict on its artefacts as they are."""
    return {path.parent: _verdict(path.parent, catalog) for path in sorted(cases_dir.glob("*/label.yaml"))}


def _changed(name: str, cases: Iterable[Path], straight: Verdicts, catalog, out: Path) -> tuple[Changed, Changed]:
    """The cases of which a copy tells nothing, and those of which it tells something else."""
    lost, other = {}, {}
    for case in cases:
        folder = out / case.name
        folder.mkdir()
        _copy(case, folder, LOGS.get(name) or ALL[name], name in LOGS)
        was, now = straight[case], _verdict(folder, catalog)
        if now[0] is None and now[1] == "unknown" and was != now:
            lost[case.name] = (was, now)
        elif now[0] != was[0]:
            other[case.name] = (was, now)
    return lost, other


@pytest.mark.parametrize("name", [*LOGS, *ALL])
def test_a_damaged_copy_keeps_its_verdict_or_tells_none(name, straight, catalog, tmp_path):
    sample = random.Random(name).sample(sorted(straight), SAMPLE)
    lost, other = _changed(name, sample, straight, catalog, tmp_path)
    assert set(other) <= MISREAD.get(name, set()), other
    assert len(lost) <= len(straight) - READ.get(name, len(straight)), lost


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOGS, *ALL])
def test_all_damaged_copies(name, straight, catalog, tmp_path):
    lost, other = _changed(name, straight, straight, catalog, tmp_path)
    assert set(other) <= MISREAD.get(name, set()), other
    assert len(straight) - len(lost) - len(other) >= READ.get(name, len(straight)), lost
