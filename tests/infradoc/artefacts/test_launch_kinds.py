"""Which lines are a launch, and what launches of other forms than vLLM's say."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.config import ConfigKind
from infradoc.artefacts.kinds.describe import DescribeKind
from infradoc.artefacts.kinds.launch import LaunchKind
from infradoc.artefacts.kinds.launch_code import LaunchCodeKind
from infradoc.artefacts.kinds.launch_units import LaunchUnitsKind


@pytest.fixture(scope="module")
def command(read_kind):
    return partial(read_kind, LaunchKind())


@pytest.fixture(scope="module")
def config(read_kind):
    return partial(read_kind, ConfigKind())


@pytest.fixture(scope="module")
def code(read_kind):
    return partial(read_kind, LaunchCodeKind())


@pytest.mark.parametrize(
    "line",
    [
        "python 3.11 with vllm serve from main",
        "ollama is slow after the update",
        "sglang/srt/managers/scheduler.py failed --tp 2",
        '  File "/opt/sglang/srt/server.py", line 3, in launch_server',
        "[2025-11-04 09:12:31] server_args=ServerArgs(model_path='/m', tp_size=8)",
        "docker run --rm redis:7",
        "python train.py --fp16",
        "root 12 0.0 0.0 1 1 pts/0 S+ 10:00 0:00 grep --color=auto vllm serve",
    ],
)
def test_a_line_that_starts_no_server_is_no_launch(line):
    assert LaunchKind().spans([line]) == []


def test_one_quoted_command_counts_and_several_suggestions_do_not(command):
    assert command("I run `vllm serve org/m --max-model-len 512` here.\n")[1]["max_model_len"] == 512
    assert command("Try `vllm serve m --max-model-len 1` or `x`.\nor `vllm serve m --max-model-len 2`\n")[1] == {}


def test_a_script_is_read_with_what_it_sets(command):
    text = (
        "#!/bin/sh\nset -e\n\nLEN=2048\n\nexec vllm serve org/m --max-model-len $LEN \\\n  --enforce-eager\nINFO: up\n"
    )
    assert command(text)[1]["max_model_len"] == 2048
    assert LaunchKind().spans(text.splitlines()) == [(0, 7)]


def test_a_quoted_script_over_several_lines(command):
    text = (
        'docker run --shm-size 2g vllm/vllm-openai bash -c "\n  pip list &&\n  vllm serve org/m --max-num-seqs 7"\nup\n'
    )
    _, facts = command(text)
    assert facts["max_num_seqs"] == 7 and facts["shm_size"] == 2 << 30


@given(st.lists(st.text(max_size=60), max_size=12))
def test_no_lines_make_the_kinds_raise(lines):
    for kind in (LaunchKind(), ConfigKind(), DescribeKind(), LaunchCodeKind()):
        assert all(0 <= start < end <= len(lines) for start, end in kind.spans(lines))


def test_tensorrt_llm_options(config):
    _, facts = config(
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.85\n  enable_block_reuse: false\nmax_batch_size: 64\n"
    )
    assert facts["target.system"] == "trtllm" and facts["gpu_memory_utilization"] == 0.85
    assert facts["prefix_caching"] is False and facts["max_num_seqs"] == 64


def test_a_backend_of_tensorrt_llm_tells_its_options_from_those_of_vllm(config):
    shared = "model: org/m-4b\nenable_chunked_prefill: false\n"
    assert config(shared + "backend: pytorch\n")[1]["target.system"] == "trtllm"
    assert config(shared + "max_num_seqs: 64\n")[1]["target.system"] == "vllm"


def test_sglang_options(config):
    _, facts = config("model-path: org/m\nmem-fraction-static: 0.9\ntp: 2\ndisable-radix-cache: true\n")
    assert (
        facts["target.system"] == "sglang" and facts["tensor_parallel_size"] == 2 and facts["prefix_caching"] is False
    )


@pytest.mark.parametrize(
    "text",
    [
        "model_name_or_path: org/m\nmax_model_len: 1\nper_device_train_batch_size: 1\nmax_num_seqs: 3\n",
        "model: gpt-4\ntemperature: 0.5\n",
        "INFO: max-model-len\nWARNING: max-num-seqs\n",
    ],
)
def test_other_files_are_left_alone(text):
    assert ConfigKind().spans(text.splitlines()) == []


def test_a_ray_service_of_kubernetes(config):
    serve = "applications:\n- args:\n    llm_configs:\n    - model_loading_config: {model_source: org/m}\n" \
        "      accelerator_type: L4\n      engine_kwargs: {max_model_len: 4096}\n" \
        "      deployment_config: {max_ongoing_requests: 8}\n"  # fmt: skip
    body = "".join(f"    {line}\n" for line in serve.splitlines())
    worker = "{image: rayproject/ray-llm:2.46.0, resources: {limits: {memory: 32Gi, nvidia.com/gpu: 2}}}"
    cluster = f"  rayClusterConfig:\n    workerGroupSpecs:\n    - template: {{spec: {{containers: [{worker}]}}}}\n"
    _, facts = config(f"apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: |\n{body}{cluster}")
    assert facts["cgroup.memory_limit_bytes"] == 32 << 30 and facts["gpu.visible"] == 2
    assert facts["max_model_len"] == 4096 and facts["gpu.name"] == "L4" and facts["ray.max_ongoing_requests"] == 8


POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.9.2
    args: [--model, org/m]
    volumeMounts: [{name: big, mountPath: /cache}]
  volumes: [{name: big, emptyDir: {medium: Memory, sizeLimit: 2Gi}}]
status:
  containerStatuses:
  - restartCount: 4
    lastState: {terminated: {exitCode: 137, reason: %s}}
"""


def test_how_a_pod_ended_is_an_event_at_its_line(config):
    ((event,), facts) = config(POD % "OOMKilled")
    assert event.name == "host_oom_kill" and event.fields == {"scope": "container"} and event.source == "paste:12"
    assert facts["container.restarts"] == 4 and "shm_size" not in facts


def test_signal_nine_alone_says_less(config):
    ((event,), _) = config(POD % "Error")
    assert event.name == "worker_died" and event.fields["exit_code"] == 137


def test_an_eviction_is_the_hosts_memory(config):
    text = POD % "Completed" + "  reason: Evicted\n  message: 'The node was low on resource: memory.'\n"
    events, _ = config(text.replace("exitCode: 137", "exitCode: 0"))
    assert [(event.name, event.fields["scope"]) for event in events] == [("host_oom_kill", "host")]


def test_compose_with_an_entry_point_and_defaults(config):
    _, facts = config(
        "services:\n  a:\n    image: redis\n  b:\n    image: vllm/vllm-openai:v0.8.5\n    env_file: [a.env]\n"
        '    command: ["--model", "${MODEL}", "--max-model-len", "${LEN:-4096}", "--max-num-seqs", "$SEQS"]\n'
        "    entrypoint: [python3, -m, vllm.entrypoints.openai.api_server]\n"
    )
    assert facts["max_model_len"] == 4096 and "max_num_seqs" not in facts and "model_checkpoint" not in facts


def test_pm2_in_javascript(config):
    _, facts = config(
        "module.exports = {\n  apps: [{\n    name: 'llm', // ours\n    script: '/opt/vllm',\n"
        "    args: 'serve org/m --max-num-seqs 8',\n    env: { OMP_NUM_THREADS: '2' },\n  }],\n};\n"
    )
    assert facts["max_num_seqs"] == 8 and facts["omp_num_threads"] == 2


def test_lmdeploy_over_several_lines(code):
    _, facts = code(
        "from lmdeploy import pipeline, TurbomindEngineConfig\npipe = pipeline(\n    'org/m',\n"
        "    backend_config=TurbomindEngineConfig(\n        session_len=8192,\n"
        "        cache_max_entry_count=0.5,\n    ),\n)\n"
    )
    assert facts["target.system"] == "lmdeploy" and facts["model.name"] == "org/m"
    assert facts["max_model_len"] == 8192 and facts["gpu_memory_utilization"] == 0.5


def test_other_libraries_have_a_pipeline_too():
    lines = ["from transformers import pipeline", "pipe = pipeline('text-generation', model='org/m')"]
    assert LaunchCodeKind().spans(lines) == []


@pytest.mark.parametrize(
    ("text", "system", "name", "value"),
    [
        (
            "llm = sgl.Engine(\n  model_path='org/m',\n  mem_fraction_static=0.7,\n)",
            "sglang",
            "gpu_memory_utilization",
            0.7,
        ),
        ("llm = Llama(model_path='/m.gguf', n_ctx=4096)", "llamacpp", "max_model_len", 4096),
        (
            "from tensorrt_llm import LLM\nkv = KvCacheConfig(free_gpu_memory_fraction=0.6)\n"
            "llm = LLM('org/m', kv_cache_config=kv)",
            "trtllm",
            "gpu_memory_utilization",
            0.6,
        ),
    ],
)
def test_code_of_other_engines(code, text, system, name, value):
    _, facts = code(text)
    assert facts["target.system"] == system and facts[name] == value


def test_a_description_keeps_its_events_and_gives_limits(read_kind):
    text = (
        "Name:         llm-0\nNamespace:    a\nContainers:\n  llm:\n    Image:         lmsysorg/sglang:v0.4.9\n"
        "    Command:\n      python3\n      -m\n      sglang.launch_server\n      --mem-fraction-static\n      0.9\n"
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
        "    Restart Count:  3\n    Limits:\n      memory:  64Gi\n"
        "    Environment:\n      HF_TOKEN:  <set to the key 't' in secret 's'>\n"
        "    Mounts:\n      /dev/shm from dshm (rw)\nVolumes:\n  dshm:\n    Type:       EmptyDir (x)\n"
        "    Medium:     Memory\n    SizeLimit:  8Gi\nEvents:  <none>\n[2025-11-04 09:12:31] Load weight begin.\n"
    )
    events, facts = read_kind(DescribeKind(), text)
    assert [event.name for event in events] == ["host_oom_kill", "worker_died"] and events[0].source == "paste:13"
    assert facts["gpu_memory_utilization"] == 0.9 and facts["cgroup.memory_limit_bytes"] == 64 << 30
    assert facts["shm_size"] == 8 << 30 and facts["container.restarts"] == 3 and "env.HF_TOKEN" not in facts
    assert DescribeKind().spans(text.splitlines())[0][1] == len(text.splitlines()) - 1


def test_settings_of_another_engine_beside_it_are_not_the_servers(read):
    found = read(
        a__yaml="services:\n  e:\n    image: ollama/ollama\n    environment: {OLLAMA_NUM_PARALLEL: '4'}\n",
        b__log="INFO 05-12 20:01:19 [metrics.py:486] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
        "5.4 tokens/s, Running: 0 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.0%, "
        "CPU KV cache usage: 0.0%.\n",
        c__sh="vllm serve org/m --max-num-seqs 64\n" * 2,
    )
    assert found.system == "vllm" and found.facts["max_num_seqs"].value == 64


@pytest.mark.parametrize(
    "line",
    [
        "web: vllm serve m --max-num-seqs 4",
        "Launch command: vllm serve m --max-num-seqs 4",
        "\tvllm serve m --max-num-seqs 4",
    ],
)
def test_a_command_behind_a_label(command, line):
    assert command(line)[1]["max_num_seqs"] == 4


def test_a_level_is_no_label():
    assert LaunchKind().spans(["ERROR: vllm serve failed --again", "INFO: vllm serve m --x 1"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "spec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, m, --max-num-seqs, '4']\n",
        "llm:\n  image: our_vllm:20240523\n  command: --model m --max-num-seqs 4\n",
        "- name: x\n  image: vllm/vllm-openai\n  args: [--model, m, --max-num-seqs, '4']\n",
        "apiVersion: serving.kserve.io/v1beta1\nspec:\n  predictor:\n    model:\n"
        "      modelFormat: {name: huggingface}\n      args: [--model_id=m, --max-num-seqs=4]\n",
        "image:\n  repository: vllm/vllm-openai\n  tag: v0.9.0\n  command: [vllm, serve, m, --max-num-seqs, '4']\n",
    ],
)
def test_parts_of_a_manifest(config, text):
    _, facts = config(text)
    assert facts["max_num_seqs"] == 4 and facts["model_checkpoint"] == "m"


@pytest.mark.parametrize(
    ("name", "body"),
    [("config.yaml", "model: m\nmax-num-seqs: 4\n"), ("start.sh", "set -e\nexec vllm serve m --max-num-seqs 4\n")],
)
def test_files_in_a_config_map(config, name, body):
    rows = "".join(f"    {line}\n" for line in body.splitlines())
    _, facts = config(f"apiVersion: v1\nkind: ConfigMap\ndata:\n  {name}: |\n{rows}")
    assert facts["target.system"] == "vllm" and facts["max_num_seqs"] == 4


def test_tritons_model_json(config):
    _, facts = config('{\n  "model": "m",\n  "gpu_memory_utilization": 0.5,\n  "max_num_seqs": 4\n}\n')
    assert facts["max_num_seqs"] == 4 and facts["gpu_memory_utilization"] == 0.5


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


SELF = "apiVersion: v1\nitems: &x\n- apiVersion: v1\n  items: *x\n"


@pytest.mark.parametrize("text", [SELF, BOMB + "image: vllm/vllm-openai\n"])
def test_yaml_that_stands_for_itself_or_for_billions(text):
    assert ConfigKind().spans(text.splitlines()) == []


def test_images_that_only_talk_to_an_engine():
    text = "services:\n  a:\n    image: ghcr.io/open-webui/open-webui:ollama\n  b:\n    image: lmcache/vllm-router:v1\n"
    assert ConfigKind().spans(text.splitlines()) == []


def test_podmans_quadlet(read_kind):
    _, facts = read_kind(
        LaunchUnitsKind(),
        "[Container]\nImage=docker.io/vllm/vllm-openai:v0.9.1\nExec=--model m --max-num-seqs 4\nShmSize=2g\n",
    )
    assert facts["max_num_seqs"] == 4 and facts["shm_size"] == 2 << 30 and facts["target.version"] == "0.9.1"
