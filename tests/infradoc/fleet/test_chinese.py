"""Whatever a source, the engine's API or a repair says of a fault is said in Chinese on a Chinese screen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import infradoc
from infradoc.fleet.chinese import TROUBLES, in_chinese, in_language
from infradoc.scheme import told

# Modules whose errors reach a screen: what is read at each look, what a repair asks, what reads a recording.
SAYERS = (
    "scheme.py",
    *(f"sources/{name}.py" for name in ("fetch", "page_check", "mapping", "metrics_page", "credentials", "admin")),
    *(f"sources/{name}.py" for name in ("log", "log_command", "host", "archive", "amdsmi")),
    *(f"remediation/{name}.py" for name in ("admin", "change", "session", "journal", "client_log")),
    *(f"fleet/{name}.py" for name in ("engine_view", "repair", "replaying", "watcher")),
    *(f"tui/{name}.py" for name in ("app", "export")),
)
# Said in a language of its own already, or no sentence for people.
OTHERS = re.compile(r"^(infradoc-|X1 speaks X1|.*histogram_quantile|may have been done|X1: X1$|X1[^ ]*$)")
HELD = re.compile(r"(hint|message|said|error|text)$")


def sample(node: ast.expr | None) -> str | None:
    """A text of the code with X1 for what it fills in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X1" for part in node.values)
    return None


def texts_of(path: Path) -> Iterator[tuple[str, int, str]]:
    """What a module says: arguments of errors and readings, and texts that are named before."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            is_error = name.endswith(("Error", "Lost", "Busy", "Conflict", "Stopped")) or name == "kind"
            found += node.args if is_error else []
            found += [word.value for word in node.keywords if word.arg in ("error", "hint")]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found += [node.value] if HELD.search(node.targets[0].id) else []
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            found += node.value.elts
        for one in found:
            text = sample(one)
            if text and " " in text and not OTHERS.match(text):
                yield path.name, node.lineno, text


def english_left(text: str) -> list[str]:
    """Words that nobody translated: two letters in a row beside what is filled in, names and paths."""
    kept = re.sub(
        r"/admin/\w+|X1|`[^`]*`|https?|[A-Z]+_[A-Z_]+|[a-z]+_[a-z_]+|\[targets.NAME.auth\]|infradoc\S*|--[\w-]+",
        "",
        text,
    )
    known = {"llama", "cpp", "HTTP", "HTML", "JSON", "Prometheus", "LLM", "URL", "UTF", "MiB", "NVML", "TLS", "PEM"}
    known |= {"CA", "AMD", "GPU", "tar", "gz", "proxy", "bearer", "vLLM", "SGLang", "TGI"}
    return [word for word in re.findall(r"[A-Za-z]{2,}", kept) if word not in known]


def test_every_fault_that_a_screen_may_show_has_a_translation() -> None:
    folder = Path(infradoc.__file__).parent
    said = [one for name in SAYERS for one in texts_of(folder / name)]
    assert len(said) > 70  # the walk itself finds what there is
    missing = [(name, line, text) for name, line, text in said if english_left(in_chinese(text))]
    assert missing == []


def test_every_translation_keeps_what_is_filled_in() -> None:
    for english, chinese in TROUBLES.items():
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", chinese)), english
        assert re.search(r"[\u4e00-\u9fff]", chinese), english


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("h:1 refuses the connection. Is the server running on that port?", "h:1 拒绝连接。服务是否在该端口运行？"),
        (
            "The look failed: http://h:1/metrics answers 503. See the server's log.",
            "这次采样失败：http://h:1/metrics 返回 503。请查看服务的日志。",
        ),
        (
            "No connection to http://h/admin/config: [Errno 111] Connection refused. Is the engine running there?",
            "无法连接 http://h/admin/config：连接被拒绝。引擎是否在那里运行？",
        ),
        (
            "http://h/metrics gave no page: ConnectionRefusedError: [Errno 111] Connection refused.",
            "http://h/metrics 没有返回页面：连接被拒绝。",
        ),
        (
            "The log command docker does not run: it ended at once with exit code 1. Its last line: Error. No such",
            "日志命令 docker 无法运行：它立即结束，退出码 1。最后一行：Error. No such",
        ),
        ("The log command nope does not run: No such file or directory.", "日志命令 nope 无法运行：文件不存在。"),
        ("http://h/admin/config answered 409: busy with a drain", "http://h/admin/config 返回 409：busy with a drain"),
    ],
)
def test_sentences_and_hints_together(english: str, chinese: str) -> None:
    assert in_chinese(english) == chinese and in_language(english, "en") == english


def test_the_wrong_scheme_in_both_directions() -> None:
    for url in ("https://h:1/metrics", "http://h:1/metrics"):
        assert not english_left(in_chinese(" ".join(told(url))).replace("h:1/metrics", ""))


@given(st.text(max_size=200))
def test_what_is_not_known_is_kept(text: str) -> None:
    in_chinese(text)
    assert in_chinese(f"Nobody knows {len(text)}") == f"Nobody knows {len(text)}"
    assert in_language(None, "zh") == ""
