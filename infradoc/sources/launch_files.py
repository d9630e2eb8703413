"""Settings of an engine in a file of its own: vLLM's and SGLang's --config, TensorRT-LLM's extra options, Ray Serve's
applications, the values of vLLM's production stack, pm2's applications.

Documents are parsed YAML or JSON. Facts of a file that a command line names have the origin "config", so that the
command line's own flags win (vLLM: "command line > config file values > defaults"; SGLang and TensorRT-LLM likewise).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from infradoc.sources.launch import command_facts, model_facts, split_command, system_of
from infradoc.sources.launch_container import image_facts, option_facts
from infradoc.sources.launch_env import env_facts
from infradoc.sources.launch_flags import flag_facts
from infradoc.sources.launch_manifest import at, containers, limit_facts, pod_facts
from infradoc.sources.launch_yaml import parsed
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact
from infradoc_rules.sizing.gpus import gpu_named

Read = tuple[str | None, list[Fact]]
NOTHING: Read = (None, [])


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys that only a file of that engine has; two of them, one beside the model, or one that is a mapping are enough.
TELLING: Mapping[str, frozenset[str]] = {
    "sglang": _names(
        "mem-fraction-static context-length chunked-prefill-size max-running-requests cuda-graph-max-bs schedule-policy"
        " max-total-tokens disable-radix-cache max-prefill-tokens schedule-conservativeness disable-cuda-graph"
    ),
    "trtllm": _names(
        "kv-cache-config cuda-graph-config moe-config disable-overlap-scheduler print-iter-log enable-attention-dp"
        " scheduler-config use-cuda-graph cuda-graph-padding-enabled enable-iter-perf-stats build-config max-num-tokens"
        " max-beam-width attn-backend free-gpu-memory-fraction"
    ),
    "vllm": _names(
        "max-model-len gpu-memory-utilization max-num-seqs max-num-batched-tokens enforce-eager enable-prefix-caching"
        " enable-chunked-prefill kv-cache-dtype swap-space tensor-parallel-size pipeline-parallel-size block-size"
        " served-model-name limit-mm-per-prompt cpu-offload-gb uvicorn-log-level max-seq-len-to-capture"
    ),
}
_TRTLLM_BACKENDS = ("pytorch", "tensorrt", "_autodeploy")
_MODEL_KEYS = ("model", "model-path", "model-tag")
# Files of trainers have such keys too.
_TRAINING = lazy(r"per-device|learning-rate|output-dir|num-train-epochs|gradient-accumulation|^stage$|^dataset")
_RAY_KEYS = frozenset({"model_loading_config", "engine_kwargs"})
_RAY_BESIDE = frozenset({"engine_kwargs", "accelerator_type", "deployment_config"})
_CAMEL = lazy(r"(?<=[a-z0-9])([A-Z])")


def options_facts(document: Any, source: str | None) -> Read:
    """A flat mapping of an engine's long flags, in any spelling of the dash."""
    if not isinstance(document, dict):
        return NOTHING
    keys = {_key(key): value for key, value in document.items()}
    system = _owner(keys)
    if system is None:
        return NOTHING
    return system, [Fact("target.system", system, "config", source), *_options(system, document, source)]


def _owner(keys: Mapping[str, Any]) -> str | None:
    if any(_TRAINING.search(key) for key in keys):
        return None
    modelled = any(key in keys for key in _MODEL_KEYS)
    counts = {
        system: sum(1 + isinstance(keys[key], dict) for key in telling if key in keys)
        for system, telling in TELLING.items()
    }
    counts["trtllm"] += str(keys.get("backend")) in _TRTLLM_BACKENDS
    best = max(counts, key=lambda system: counts[system])
    return best if counts[best] + modelled >= 2 and counts[best] else None


def _options(system: str, document: Mapping[str, Any], source: str | None) -> Iterator[Fact]:
    facts: list[Fact] = []
    model = ""
    for key, value in document.items():
        if _key(key) in _MODEL_KEYS:
            model = str(value)
        elif isinstance(value, dict) and system == "trtllm":
            for inner, text in value.items():
                facts += flag_facts(system, f"{key}.{inner}", _text(text), source, "config")
        else:
            facts += _setting(system, _key(key), value, source)
    yield from facts
    for fact in model_facts(model, (), source):
        yield Fact(fact.name, fact.value, "config", source)


def _setting(system: str, key: str, value: Any, source: str | None, origin: str = "config") -> list[Fact]:
    """A setting as the flag of that name; `false` of a switch is the same as leaving it out, or its opposite."""
    names = [f"--{key}"] if system != "trtllm" else [f"--{key.replace('-', '_')}", key.replace("-", "_")]
    found = (flag_facts(system, name, _text(value), source, origin) for name in names)
    return next((facts for facts in found if facts), [])


def ray_facts(document: Any, source: str | None) -> Read:
    """Ray Serve's `applications` (or a RayService that holds them, or one LLMConfig): what each model is started with.

    gpu.name of the accelerator_type, ray.max_ongoing_requests and ray.replicas beside the engine's knobs.
    """
    inner = at(document, "spec", "serveConfigV2")
    configs = list(_llm_configs(parsed(inner) if isinstance(inner, str) else document))
    facts = [fact for config in configs for fact in _ray_model(config, source)]
    if isinstance(inner, str):  # the workers run the engine, whatever their image is called
        workers = at(document, "spec", "rayClusterConfig", "workerGroupSpecs")
        facts += [
            *pod_facts(workers, source),
            *(fact for one in containers(workers, 0) for fact in limit_facts(one, source)),
        ]
    return ("vllm", facts) if configs else NOTHING


def _llm_configs(document: Any) -> Iterator[dict[str, Any]]:
    applications = at(document, "applications")
    holders = [at(one, "args") for one in applications] if isinstance(applications, list) else [document]
    for holder in holders:
        given = at(holder, "llm_configs")
        for config in given if isinstance(given, list) else [holder]:
            if isinstance(config, dict) and _RAY_KEYS & config.keys() and _RAY_BESIDE & config.keys():
                yield config


def _ray_model(config: Mapping[str, Any], source: str | None) -> Iterator[Fact]:
    yield Fact("target.system", "vllm", "flag", source)
    model = at(config, "model_loading_config", "model_source") or at(config, "model_loading_config", "model_id")
    yield from model_facts(model if isinstance(model, str) else "", (), source)
    for key, value in (at(config, "engine_kwargs") or {}).items():
        yield from _setting("vllm", _key(key), value, source, "flag")
    gpu = gpu_named(str(config.get("accelerator_type", "")))
    if gpu is not None:
        yield Fact("gpu.name", gpu.name, "default", source)
    deployment = config.get("deployment_config")
    for path, name in (("max_ongoing_requests", "ray.max_ongoing_requests"), ("num_replicas", "ray.replicas")):
        value = at(deployment, path)
        if isinstance(value, int) and not isinstance(value, bool):
            yield Fact(name, value, "flag", source)


def stack_facts(document: Any, source: str | None) -> Read:
    """`servingEngineSpec.modelSpec` of vLLM's production stack: image, limits, and vllmConfig with its extraArgs."""
    models = at(document, "servingEngineSpec", "modelSpec")
    if not isinstance(models, list):
        return NOTHING
    facts: list[Fact] = [Fact("target.system", "vllm", "flag", source)]
    for model in (one for one in models if isinstance(one, dict)):
        facts += image_facts(f"{model.get('repository', '')}:{model.get('tag', '')}".strip(":"), source)
        facts += model_facts(str(model.get("modelURL", "")), (), source)
        facts += option_facts("memory", str(model.get("limitMemory", "")), source)
        facts += option_facts("cpus", str(model.get("limitCPU", "")), source)
        facts += option_facts("shm-size", str(model.get("shmSize", "")), source)
        for row in model.get("env") or []:
            if isinstance(row, dict) and "value" in row:
                facts += env_facts("vllm", str(row.get("name")), str(row["value"]), source)
        config = model.get("vllmConfig") or {}
        for key, value in config.items() if isinstance(config, dict) else ():
            if isinstance(value, list):
                facts += command_facts(["vllm", "serve", *map(str, value)], "vllm", source)
            else:
                facts += _setting("vllm", _key(key), value, source, "flag")
    return "vllm", facts


def apps_facts(document: Any, source: str | None) -> Read:
    """pm2's `apps`: script and args of each that starts a server we know."""
    facts: list[Fact] = []
    system: str | None = None
    apps = at(document, "apps")
    for app in apps if isinstance(apps, list) else []:
        args = at(app, "args")
        given = [str(word) for word in args] if isinstance(args, list) else split_command(str(args or ""))
        words = [str(at(app, "interpreter") or ""), str(at(app, "script") or ""), *given]
        words = [word for word in words if word not in ("", "none")]
        own = system_of(" ".join(words))
        if own is not None:
            system = system or own
            facts += [Fact("target.system", own, "flag", source), *command_facts(words, own, source)]
            for name, value in (at(app, "env") or {}).items():
                facts += env_facts(own, str(name), str(value), source)
    return system, facts


def _key(key: Any) -> str:
    """ "maxModelLen", "max_model_len" and "--max-model-len" as "max-model-len"."""
    return _CAMEL.sub(r"-\1", str(key)).lower().replace("_", "-").lstrip("-")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str) if isinstance(value, dict | list) else "" if value is None else str(value)
