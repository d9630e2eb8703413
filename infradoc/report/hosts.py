"""Names of machines in a text: by the end of a dotted name, by the word before it, and by where it stands in a line.

Much else has dots and must stay, or the text says nothing any more: files, versions, models, modules, metrics.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from infradoc_rules.lazy_pattern import lazy

OWN = frozenset(
    {"localhost", "127.0.0.1", "0.0.0.0", "::1", "[::1]", "localhost.localdomain"}
)  # nobody's in particular
_DOTTED = lazy(r"(?<![\w.-])(?:[A-Za-z0-9_][\w-]{0,62}\.){1,12}[A-Za-z]{2,24}(?![\w-]|\.\w)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SURE = _words("com org edu gov mil corp intranet lan localdomain arpa")  # behind the first label, nothing but hosts
_PRIVATE = _words("internal local home private svc consul cluster hpc cloud example test invalid")
_COUNTRIES = _words(
    "cn hk tw jp kr sg au nz ca ch de fr uk nl be dk fi ru ua cz hu gr es eu br mx za il ae vn th ir tr kz"
)
# Ends of hosts that are also words of code and of metrics: they count only where more speaks for a host.
_EITHER = _words("net io ai dev app co me info tech run int pro site online systems")
_SERVICES = _words(
    "www api mail git gitlab registry harbor proxy gateway grafana prometheus llm inference vpn ssh login ns"
)
_CODE = frozenset(sys.stdlib_module_names) | _words(
    "torch vllm sglang transformers tensorrt_llm lmdeploy triton numpy np ray deepspeed accelerate datasets tokenizers"
    " safetensors model models self cls layer layers module args config cfg engine server system process container"
    " gpu cpu kv llm disk nvidia cuda nccl uvicorn fastapi starlette pydantic aiohttp httpx megatron apex peft trl"
    " bitsandbytes xformers java javax kotlin llama ggml gevent werkzeug asgiref go main"
)
# Everybody's: registries, model hubs, and the prefixes of Kubernetes' own names.
_EVERYBODYS = (
    "nvidia.com", "amd.com", "intel.com", "kubernetes.io", "k8s.io", "kserve.io", "ray.io", "github.com",
    "huggingface.co", "hf.co", "modelscope.cn", "pytorch.org", "ghcr.io", "docker.io", "nvcr.io", "quay.io",
    "gcr.io", "vllm.ai", "ollama.com", "ollama.ai", "openai.com", "anthropic.com", "python.org", "prometheus.io",
)  # fmt: skip
_FILES = _words("log txt json jsonl yaml yml toml gz zip tar tgz csv out err md html xz zst bak")

# A bare name counts where its place or the word before it says what it is; there with a digit: "host: llama-server".
# is none. "HOST:" is what stands for one already.
_NAMED = lazy(
    r"(?P<kept>(?!HOST['\"]?\s{0,3}[:：])\b(?i:host(?:_?name)?|node(?:_?name)?|machine|主机|节点)['\"]?\s{0,3}[=:：]\s{0,3}['\"]?)"
    r"(?P<name>(?=[a-z-]{0,62}\d)(?=[\d-]{0,62}[a-z])[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9]))(?![\w./-])"
)
_SYSLOG = lazy(
    r"(?P<kept>\b[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d )(?P<name>[A-Za-z0-9][\w-]{0,62})"
    r"(?= [\w./-]{1,64}(?:\[\d{1,9}\])?:)"
)
_NCCL = lazy(r"(?P<kept>)(?<![\w.-])(?P<name>[A-Za-z0-9][\w-]{0,62})(?=:\d{1,9}:\d{1,9} \[\d{1,4}\] NCCL )")
_PROMPT = lazy(r"(?P<kept>)(?<![\w.-])[a-z_][a-z0-9_-]{0,31}@(?P<name>[A-Za-z0-9][A-Za-z0-9-]{0,62})(?=:[~/])")
_BY_PLACE = (_NAMED, _SYSLOG, _NCCL, _PROMPT)


def without_hosts(text: str) -> str:
    """`text` with HOST for each name of a machine."""
    shown = _DOTTED.sub(_shown, text)
    for pattern in _BY_PLACE:
        shown = pattern.sub(_placed, shown)
    return shown


def short_names(text: str) -> Iterator[str]:
    """Machines in a text by their first labels, those unlike common words: they stand alone elsewhere."""
    for found in _DOTTED.finditer(text):
        first = found[0].split(".")[0]
        if is_telling(first) and _host_part(found) is not None:
            yield first
    for pattern in _BY_PLACE:
        yield from (found["name"] for found in pattern.finditer(text) if is_telling(found["name"]))


def is_telling(label: str) -> bool:
    """Whether a single label is a machine's own: `gpu-17`, not `vllm`, which stands for more than a machine."""
    return len(label) >= 4 and any(c.isalpha() for c in label) and any(c.isdigit() or c == "-" for c in label)


def _placed(found: re.Match[str]) -> str:
    if found["name"].lower() in OWN:
        return found[0]
    before = "USER@" if found.re.pattern == _PROMPT.pattern else found["kept"]
    return f"{before}HOST"


def _shown(found: re.Match[str]) -> str:
    host = _host_part(found)
    return found[0] if host is None else f"HOST{found[0][len(host) :]}"


def _host_part(found: re.Match[str]) -> str | None:
    """The beginning of a dotted name that names a machine; a file may be called after one."""
    name = found[0]
    labels = name.lower().split(".")
    if "_" in name or name.lower() in OWN:
        return None
    if labels[-1] in _FILES and len(labels) > 2:
        labels.pop()
    follows = found.string[found.end() : found.end() + 2]
    has_port = len(follows) == 2 and follows[0] == ":" and follows[1].isdigit() and labels[-1] not in ("py", "log")
    host = name[: len(".".join(labels))]
    return host if _is_host(labels, has_port and host == name) else None


def _is_host(labels: list[str], has_port: bool) -> bool:
    last, own = labels[-1], labels[:-1]
    if not any(c.isalpha() for label in own for c in label):
        return False  # a version: 0.7.4.dev
    if ".".join(labels).endswith(_EVERYBODYS):
        return False
    if "svc" in labels[1:] or labels[-2:] == ["cluster", "local"]:
        return True
    if any(label in _SURE for label in labels[1:]):
        return True
    if labels[0] in _CODE and not (last in _COUNTRIES and len(labels) > 2):
        return False
    if last in _PRIVATE or last in _COUNTRIES:
        return True
    telling = has_port or labels[0] in _SERVICES or any(c.isdigit() or c == "-" for label in own for c in label)
    return last in _EITHER and telling
