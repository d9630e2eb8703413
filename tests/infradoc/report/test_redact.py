"""What leaves the house in a page or an issue holds no host, address, user, prompt or key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.report.redact import redact_text, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://gpu-17.corp.example:8000/v1 failed", "GET http://HOST:8000/v1 failed"),
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://[fd00::1]:8000/x", "http://HOST:8000/x"),
        ("client 10.3.4.5:5123 connected", "client ADDRESS:5123 connected"),
        ("driver 570.86.10.01, vllm 0.11.0", "driver 570.86.10.01, vllm 0.11.0"),
        ("/home/alice/models/x", "/home/USER/models/x"),
        ("prompt: 'tell me a secret', params: x", "prompt: [16 characters], params: x"),
        ('{"content": "a \\"b\\" c", "n": 1}', '{"content": [9 characters], "n": 1}'),
        ("16 prompt tokens were cut", "16 prompt tokens were cut"),
        ("server.log:11", "server.log:11"),
        (
            "cannot reach gpu-node-17.corp.internal as alice@corp.example.com 2001:db8::17",
            "cannot reach HOST as EMAIL ADDRESS",
        ),
        ("vllm.default.svc.cluster.local:8000", "HOST:8000"),
        ("prod-llm.mycorp.io refused", "HOST refused"),
        ("server.firma.de", "HOST"),
        ("registry.corp.example.com/team/vllm:0.11", "HOST/team/vllm:0.11"),
        ("incidents/gpu-node-17.corp.internal/server.log", "incidents/HOST/server.log"),
        ("gpu-node-17.corp.internal.log:14", "HOST.log:14"),
        ("hostname: gpu-17, NODE_NAME=worker-3", "hostname: HOST, NODE_NAME=HOST"),
        ("Nov 30 10:00:00 gpunode kernel: NVRM: Xid", "Nov 30 10:00:00 HOST kernel: NVRM: Xid"),
        ("gpunode:412:980 [0] NCCL INFO Bootstrap", "HOST:412:980 [0] NCCL INFO Bootstrap"),
        ("alice@gpunode:~$ nvidia-smi", "USER@HOST:~$ nvidia-smi"),
        ("[fe80::1%eth0]:80, fe80:0000:0000:0000:506b:4b03:005a:8e42", "[ADDRESS%eth0]:80, ADDRESS"),
        (r"C:\Users\alice\models and C:\\Users\\John Smith\\x", r"C:\Users\USER\models and C:\\Users\\USER\\x"),
        ("D:/Users/alice", "D:/Users/USER"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    assert redact_text(text) == shown


KEPT = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ", "01-ai/Yi-34B", "deepseek-ai/DeepSeek-V3",
    "server.log", "server.log:14", "config.json", "model-00001-of-00004.safetensors", "docker-compose.yaml",
    "libcudart.so.12", "tokenizer.model", "pytorch_model.bin", "run-17.out.gz", "infradoc.toml", "main.py:12",
    "--gpu-memory-utilization", "--max-model-len=32768", "--override.generation-config", "-tp 4", "--host 0.0.0.0",
    "0.11.0", "0.7.4.dev", "v0.8.5.post1", "2.7.1+cu128", "570.86.10.01", "1.0.0rc1", "vllm/vllm-openai:v0.11.0",
    "torch.OutOfMemoryError", "torch.distributed.run", "torch.internal", "vllm.v1.engine.core", "threading.local",
    "vllm.entrypoints.openai.api_server", "asyncio.run", "logger.info", "uvicorn.app", "numpy.linalg",
    "torch._dynamo.exc.Unsupported", "model.layers.0.self_attn.q_proj", "x.to", "self.ch", "np.io",
    "system.net.io", "gpu.memory.used", "process.cpu.time", "vllm:num_requests_waiting", "vllm.cache.usage",
    "nvidia.com/gpu: 8", "app.kubernetes.io/name", "leaderworkerset.x-k8s.io", "huggingface.co", "nvcr.io/nvidia/x",
    "2026-06-01 10:00:03,123", "10:00:00", "0000:81:00.0", "00000000:81:00.0", "x[1::2]", "std::vector", "c10::Error",
    "a1:b2:c3:d4:e5:f6", "tests/test_a.py::test_b", "localhost", "::1", "sha256:deadbeef01", "node: 0", "host: true",
    "host: llama-server", "HOST: rank0", "node: H100-80GB",
    "image@sha256:0123456789abcdef", "TP0", "rank-3", "e.g. this", "and so on. It is", "H100-80GB", "NVRM: Xid 79",
)  # fmt: skip


@pytest.mark.parametrize("text", KEPT)
def test_what_must_stay(text: str) -> None:
    assert redact_text(text) == text


@given(
    st.lists(st.sampled_from(KEPT), min_size=1, max_size=4),
    st.sampled_from((" ", ", ", "\n", " (", ") ", "; ", " -> ")),
)
def test_what_must_stay_does_so_in_any_company(texts: list[str], joint: str) -> None:
    text = joint.join(texts)
    assert redact_text(text) == text


def dotted(first: str, rest: list[str], end: str) -> str:
    return ".".join([first, *rest, end])


LABEL = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
ENDS = st.sampled_from(("corp.internal", "example.com", "lan", "svc.cluster.local", "mycorp.org", "ec2.internal"))


@given(LABEL.map(lambda text: f"gpu-{text}7"), st.lists(LABEL, max_size=2), ENDS, st.sampled_from(KEPT))
def test_a_host_goes_and_what_stands_beside_it_stays(first: str, rest: list[str], end: str, kept: str) -> None:
    host = dotted(first, rest, end)
    for text in (
        f"cannot reach {host}: {kept}",
        f"{kept} ({host})",
        f"/data/{host}/x {kept}",
        f"peer={host}:29500 {kept}",
    ):
        assert redact_text(text) == text.replace(host, "HOST")


def report(name: str, text: str) -> dict:
    return {"target": {"name": name}, "not_visible": [text], "vitals": {"queue_depth": 1.0}}


def test_the_targets_host_goes_wherever_it_stands() -> None:
    cleaned = redacted(report("gpu-17.corp.example:8000", "gpu-17.corp.example does not answer"))
    assert cleaned == report("HOST:8000", "HOST does not answer")


def test_a_machine_is_known_by_its_first_label_too() -> None:
    cleaned = redacted(report("prod", "gpu-17.corp.internal: gpu-17 is slow, gpu-170 and x-gpu-17 are not"))
    assert cleaned == report("prod", "HOST: HOST is slow, gpu-170 and x-gpu-17 are not")
    cleaned = redacted(report("prod", "gpu-a1:412:980 [0] NCCL INFO Bootstrap; no answer from gpu-a1 (rank 3)"))
    assert cleaned == report("prod", "HOST:412:980 [0] NCCL INFO Bootstrap; no answer from HOST (rank 3)")
    cleaned = redacted(report("gpu-17:8000", "gpu-17 is slow"))
    assert cleaned == report("HOST:8000", "HOST is slow")


def test_a_host_that_is_called_as_the_engine_hides_no_engine() -> None:
    found = report("vllm:8000", "vllm does not answer at http://vllm:8000")
    assert redacted(found) == report("HOST:8000", "vllm does not answer at http://HOST:8000")


def test_a_name_from_the_configuration_stays() -> None:
    assert redacted(report("prod", "prod is down")) == report("prod", "prod is down")


@given(st.text(max_size=300))
def test_any_text_is_survived_and_done_once(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        *("a." * 50_000, "'" * 100_000, "prompt: '" * 20_000, "://" * 50_000, "1." * 50_000),
        *("a@" * 50_000, "ab:" * 40_000, "C:\\Users\\" * 10_000, "a-" * 50_000, "a.b@" * 30_000, "host=" * 20_000),
    ],
    ids=["dots", "quotes", "prompts", "schemes", "numbers", "mails", "groups", "folders", "labels", "both", "names"],
)
def test_a_long_line_takes_linear_time(text: str) -> None:
    assert redact_text(text)  # the suite's timeout is the bound: quadratic patterns take minutes here
