"""The same start of a server, written for every tool that people start servers with, says the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infradoc.artefacts.kinds import KINDS
from infradoc.artefacts.split import split
from infradoc.artefacts.text import clean

IMAGE = "vllm/vllm-openai:v0.9.1"
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Start:
    """What is set, as vLLM's flags."""

    model: str
    numbers: dict[str, float]
    eager: bool
    threads: int

    def flags(self) -> list[str]:
        given = [word for name, value in self.numbers.items() for word in (f"--{name}", str(value))]
        return given + (["--enforce-eager"] if self.eager else [])

    def words(self) -> list[str]:
        return ["vllm", "serve", self.model, *self.flags()]

    def facts(self) -> dict[str, object]:
        known: dict[str, object] = {name.replace("-", "_"): value for name, value in self.numbers.items()}
        return known | {"model_checkpoint": self.model} | ({"enforce_eager": True} if self.eager else {})


starts = st.builds(
    Start,
    model=st.sampled_from(["org/some-7b", "/models/m.v2", "hf.co/a_b/c"]),
    numbers=st.fixed_dictionaries(
        {"max-model-len": st.integers(128, 200_000)},
        optional={
            "max-num-seqs": st.integers(1, 512),
            "gpu-memory-utilization": st.sampled_from([0.5, 0.85, 0.9, 0.95]),
            "tensor-parallel-size": st.sampled_from([1, 2, 8]),
            "max-num-batched-tokens": st.integers(256, 65_536),
        },
    ),
    eager=st.booleans(),
    threads=st.integers(1, 64),
)


def shell(start: Start) -> str:
    return f"OMP_NUM_THREADS={start.threads} {shlex.join(start.words())}\n"


def continued(start: Start, mark: str, first: str) -> str:
    lines = [" ".join(pair) for pair in _pairs(start.words())]
    return first.format(start.threads) + f" {mark}\n    ".join(lines) + "\n"


def _pairs(words: list[str]) -> list[list[str]]:
    out: list[list[str]] = [words[:3]]
    for word in words[3:]:
        if word.startswith("--"):
            out.append([word])
        else:
            out[-1].append(word)
    return out


def docker(start: Start) -> str:
    options = ["--gpus", "all", "-e", f"OMP_NUM_THREADS={start.threads}", "--rm"]
    return shlex.join(["docker", "run", *options, IMAGE, "--model", start.model, *start.flags()])


def compose(start: Start, as_list: bool) -> str:
    words = ["--model", start.model, *start.flags()]
    command = json.dumps(words) if as_list else shlex.join(words)
    rows = f"    image: {IMAGE}\n    command: {command}\n    environment:\n      OMP_NUM_THREADS: {start.threads}\n"
    return f"services:\n  llm:\n{rows}"


def pod(start: Start, kind: str = "Pod") -> str:
    container = {
        "image": IMAGE,
        "command": ["vllm", "serve"],
        "args": [start.model, *start.flags()],
        "env": [{"name": "OMP_NUM_THREADS", "value": str(start.threads)}],
    }
    spec = {"containers": [container]}
    body = {"apiVersion": "v1", "kind": kind, "spec": spec if kind == "Pod" else {"template": {"spec": spec}}}
    return json.dumps(body, indent=2)


def described(start: Start) -> str:
    args = "\n".join(f"      {word}" for word in [start.model, *start.flags()])
    return (
        "Name:         llm-0\nNamespace:    prod\nContainers:\n  llm:\n"
        f"    Image:         {IMAGE}\n    Command:\n      vllm\n      serve\n    Args:\n{args}\n"
        f"    State:          Running\n    Environment:\n      OMP_NUM_THREADS:  {start.threads}\n"
    )


def inspected(start: Start) -> str:
    config = {
        "Image": IMAGE,
        "Env": [f"OMP_NUM_THREADS={start.threads}"],
        "Entrypoint": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "Cmd": ["--model", start.model, *start.flags()],
    }
    return json.dumps([{"Id": "a", "State": {"ExitCode": 0}, "HostConfig": {"ShmSize": 1}, "Config": config}], indent=4)


def systemd(start: Start) -> str:
    return (
        f"[Service]\nEnvironment=OMP_NUM_THREADS={start.threads}\n"
        f"ExecStart=/usr/bin/{shlex.join(start.words())}\nRestart=always\n"
    )


def supervisord(start: Start) -> str:
    command = shlex.join(start.words())
    return f'[program:llm]\ncommand=/opt/bin/{command}\nenvironment=OMP_NUM_THREADS="{start.threads}",A="b"\n'


def pm2(start: Start) -> str:
    app = {"name": "llm", "script": "vllm", "args": shlex.join(start.words()[1:])}
    return json.dumps({"apps": [app | {"env": {"OMP_NUM_THREADS": str(start.threads)}}]}, indent=2)


def dockerfile(start: Start, as_json: bool) -> str:
    command = json.dumps(start.words()) if as_json else shlex.join(start.words())
    return f"FROM {IMAGE}\nENV OMP_NUM_THREADS={start.threads}\nCMD {command}\n"


def batch(start: Start) -> str:
    return (
        "#!/bin/bash\n#SBATCH --nodes=1\n\n"
        f"export OMP_NUM_THREADS={start.threads}\nMODEL={start.model}\n\n"
        f"srun --ntasks=1 vllm serve $MODEL {shlex.join(start.flags())}\n"
    )


def python(start: Start) -> str:
    rows = [f"    {name.replace('-', '_')}={value}," for name, value in start.numbers.items()]
    rows += ["    enforce_eager=True,"] if start.eager else []
    return (
        f'import os\nfrom vllm import LLM\nos.environ["OMP_NUM_THREADS"] = "{start.threads}"\nMODEL = "{start.model}"\n'
        "llm = LLM(\n    model=MODEL,\n" + "\n".join(rows) + "\n)\n"
    )


def ray(start: Start, in_python: bool) -> str:
    engine: dict[str, object] = {name.replace("-", "_"): value for name, value in start.numbers.items()}
    engine |= {"enforce_eager": True} if start.eager else {}
    loading = {"model_id": "llm", "model_source": start.model}
    if in_python:
        rows = f"    model_loading_config={loading!r},\n    engine_kwargs={engine!r},\n"
        return f"config = LLMConfig(\n{rows})\n"
    models = [{"model_loading_config": loading, "engine_kwargs": engine}]
    return f"applications:\n- name: llm\n  args:\n    llm_configs: {json.dumps(models)}\n"


def options(start: Start, dash: str) -> str:
    rows = [f"{name.replace('-', dash)}: {value}" for name, value in start.numbers.items()]
    rows += [f"enforce{dash}eager: true"] if start.eager else []
    return "\n".join([f"model: {start.model}", *rows]) + "\n"


def chart(start: Start) -> str:
    camel = {"".join(word.title() for word in name.split("-")): value for name, value in start.numbers.items()}
    config = {name[0].lower() + name[1:]: value for name, value in camel.items()}
    config["extraArgs"] = ["--enforce-eager"] if start.eager else []
    model = {"repository": "vllm/vllm-openai", "tag": "v0.9.1", "modelURL": start.model, "vllmConfig": config}
    model["env"] = [{"name": "OMP_NUM_THREADS", "value": str(start.threads)}]
    return f"servingEngineSpec:\n  modelSpec: {json.dumps([model])}\n"


def process(start: Start) -> str:
    return (
        f"root  77 99.0 2.1 912 8123 ?  Sl  10:01  12:33 /usr/bin/python3 /usr/local/bin/{shlex.join(start.words())}\n"
    )


# name -> (the form, whether it can carry variables)
FORMS: dict[str, tuple[Callable[[Start], str], bool]] = {
    "shell": (shell, True),
    "shell with continued lines": (partial(continued, mark="\\", first="export OMP_NUM_THREADS={}\n"), True),
    "PowerShell": (partial(continued, mark="`", first='$env:OMP_NUM_THREADS = "{}"\n'), True),
    "cmd": (partial(continued, mark="^", first="set OMP_NUM_THREADS={}\n"), True),
    "docker run": (docker, True),
    "compose, list": (partial(compose, as_list=True), True),
    "compose, text": (partial(compose, as_list=False), True),
    "pod": (pod, True),
    "deployment": (partial(pod, kind="Deployment"), True),
    "kubectl describe": (described, True),
    "docker inspect": (inspected, True),
    "systemd": (systemd, True),
    "supervisord": (supervisord, True),
    "pm2": (pm2, True),
    "Dockerfile, JSON": (partial(dockerfile, as_json=True), True),
    "Dockerfile, text": (partial(dockerfile, as_json=False), True),
    "sbatch": (batch, True),
    "Python": (python, True),
    "Ray Serve": (partial(ray, in_python=False), False),
    "Ray Serve in Python": (partial(ray, in_python=True), False),
    "options file": (partial(options, dash="-"), False),
    "options file with underscores": (partial(options, dash="_"), False),
    "Helm values": (chart, True),
    "ps": (process, False),
}


def facts_in(text: str) -> dict[str, object]:
    """The facts of all launches in a text, as a post-mortem reads them."""
    segments = split("paste", clean(text.rstrip("\n").split("\n")))
    found = [BY_NAME[segment.kind].read(segment) for segment in segments if segment.kind != "log"]
    return {fact.name: fact.value for one in found for fact in one.facts}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(start=starts)
def test_every_form_says_the_same(form: str, start: Start) -> None:
    write, variables = FORMS[form]
    found = facts_in(write(start))
    wanted = start.facts() | {"target.system": "vllm"} | ({"omp_num_threads": start.threads} if variables else {})
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("form", FORMS)
def test_a_log_right_below_stays_a_log(form: str) -> None:
    text = FORMS[form][0](Start("org/some-7b", {"max-model-len": 4096}, False, 2)).rstrip("\n")
    lines = clean([*text.split("\n"), "INFO 05-12 20:01:19 [metrics.py:486] Avg prompt throughput: 0.0 tokens/s"])
    logs = [segment for segment in split("paste", lines) if segment.kind == "log"]
    assert len(logs) == 1 and logs[0].lines[-1].endswith("tokens/s")


def test_the_command_line_beats_the_file_that_it_names(read: Callable[..., object]) -> None:
    found = read(
        run__sh="vllm serve --config conf.yaml --max-model-len 4096\n",
        conf__yaml="model: org/m\nmax-model-len: 8192\nmax-num-seqs: 16\n",
    )
    facts = {name: fact.value for name, fact in found.facts.items()}  # type: ignore[attr-defined]
    assert facts["max_model_len"] == 4096 and facts["max_num_seqs"] == 16 and facts["model_checkpoint"] == "org/m"
