"""An engine that Python code starts: `LLM(...)`, `AsyncEngineArgs(...)`, `sgl.Engine(...)`, LMDeploy's `pipeline(...)`
and its configs, `Llama(...)`, Ray Serve's `LLMConfig(...)`.

The code is parsed, never run. A keyword with a plain value (numbers may be worked out of constants) is the flag of the
same name; what a variable holds is known where the code
gives it a plain value.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_files import ray_facts
from infradoc.sources.launch_flags import flag_facts
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact

CALL = lazy(
    r"\b(?:(?P<vllm>(?:vllm\.)?(?:LLM|(?:Async)?EngineArgs))|(?P<sglang>(?:sgl|sglang)\.(?:Engine|Runtime))"
    r"|(?P<lmdeploy>(?:lmdeploy\.)?(?:TurbomindEngineConfig|PytorchEngineConfig|pipeline))"
    r"|(?P<trtllm>KvCacheConfig|CudaGraphConfig)|(?P<llamacpp>(?:llama_cpp\.)?Llama)|(?P<ray>LLMConfig))\("
)
ENVIRON = lazy(r"^\s*os\.environ\[(['\"])([A-Z][A-Z0-9_]{2,60})\1\] ?= ?(['\"])([^'\"]{0,200})\3\s*$")
_TRTLLM = lazy(r"\btensorrt_llm\b|\bkv_cache_config ?=|\bKvCacheConfig\(")
_MODELS = {"LLM", "Engine", "Runtime", "pipeline"}
# Classes whose settings are part of another's, under these names.
_PARTS = {"KvCacheConfig": "kv_cache_config.", "CudaGraphConfig": "cuda_graph_config."}
# llama-cpp-python's names that are not the server's.
_LLAMA = {"n_ctx": "ctx-size", "n_batch": "batch-size", "n_ubatch": "ubatch-size", "n_threads": "threads"}
_CONSTANT = lazy(r"^[ \t]*([A-Za-z_]\w*) ?(?::[^=\n]{1,40})?= ?([^\n=]{1,300})$", re.MULTILINE)
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_MOST = 20_000  # characters of one call


def code_system(text: str) -> str | None:
    """The engine whose class the code calls; None when it calls none."""
    for found in CALL.finditer(text):
        if is_engine(text, found):
            trtllm = found.lastgroup == "vllm" and _TRTLLM.search(text)
            return "trtllm" if trtllm else "vllm" if found.lastgroup == "ray" else found.lastgroup
    return None


def is_engine(text: str, found: re.Match[str]) -> bool:
    """Whether a call that CALL found is an engine's: transformers has a `pipeline` too."""
    if found["lmdeploy"] and found[0].endswith("pipeline("):
        return "lmdeploy" in text or "backend_config" in text[found.end() : found.end() + 400]
    return True


def code_facts(text: str, source: str | None) -> list[Fact]:
    """target.system, model.name, env.NAME and the knobs of all such calls in a piece of code."""
    system = code_system(text)
    facts = [Fact("target.system", system, "flag", source)] if system else []
    for line in text.split("\n"):
        variable = ENVIRON.match(line)
        if variable is not None:
            facts += env_facts(system, variable[2], variable[4], source)
    known = _constants(text)
    for found in CALL.finditer(text):
        call = parsed_call(text[found.start() : found.start() + _MOST]) if is_engine(text, found) else None
        if call is not None:
            facts += _call_facts(_Filled(known).visit(call), system, source)
    return facts


def _constants(text: str) -> dict[str, ast.expr]:
    """Names that the code gives a plain value, once."""
    known: dict[str, ast.expr] = {}
    for name, value in _CONSTANT.findall(text):
        try:
            node = ast.parse(value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _value(node) is not None:
            known[name] = node
    return known


class _Filled(ast.NodeTransformer):
    """A call with the names in it replaced by the constants that they stand for."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self.known = known

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.args = [self.visit(part) for part in node.args]
        node.keywords = [self.visit(part) for part in node.keywords]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.known.get(node.id, node)


def call_end(text: str) -> int | None:
    """Where the first bracket of a text closes (the place after it); strings and comments are passed over."""
    depth = 0
    for token in re.finditer(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|#[^\n]*|[()\[\]{}]", text):
        mark = token[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth <= 0:
                return token.end()
    return None


def parsed_call(text: str) -> ast.Call | None:
    """The call that a text begins with; None when it is cut off or no Python."""
    end = call_end(text)
    try:
        node = ast.parse(text[:end].strip(), mode="eval").body if end else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return node if isinstance(node, ast.Call) else None


def _call_facts(call: ast.Call, system: str | None, source: str | None) -> Iterator[Fact]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "LLMConfig":
        yield from ray_facts(_plain(call), source)[1]
        return
    model = _value(call.args[0]) if call.args and name in _MODELS else None
    for key, text in _keywords(call, _PARTS.get(name, "")):
        if key in ("model", "model_path"):
            model = text
        else:
            flag = "--" + _LLAMA.get(key, key).replace("_", "-")
            yield from flag_facts(system, key if "." in key else flag, text, source)
    if model:
        yield Fact("model_checkpoint", model, "flag", source)
        yield Fact("model.name", model, "flag", source)


def _plain(node: ast.expr) -> Any:
    """A literal, or a call of keywords (`dict(...)`, a class of settings) as a mapping; None for anything else."""
    if isinstance(node, ast.Call):
        return {word.arg: _plain(word.value) for word in node.keywords if word.arg is not None}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {key.value: _plain(value) for key, value in pairs if isinstance(key, ast.Constant)}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _keywords(call: ast.Call, prefix: str) -> Iterator[tuple[str, str]]:
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if isinstance(keyword.value, ast.Call) and not prefix:
            yield from _keywords(keyword.value, f"{keyword.arg}.")
        else:
            text = _value(keyword.value)
            if text is not None:
                yield prefix + keyword.arg, text


def _value(node: ast.expr) -> str | None:
    """A plain value as a command line has it; None for what only a run of the code would tell."""
    number = _number(node, 0)
    if number is not None:
        return f"{number:.15g}"
    try:
        value = ast.literal_eval(node)
        if value is None:
            return None
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr, depth: int) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value if abs(node.value) < 1e15 else None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and depth < 8:
        left, right = _number(node.left, depth + 1), _number(node.right, depth + 1)
        if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
            return None
        return _OPERATORS[type(node.op)](left, right)
    return None
