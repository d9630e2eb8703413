"""Two servers in one folder or paste are judged apart; attempts, copies, nodes and ranks of one are not."""

from __future__ import annotations

import pytest

from infradoc.artefacts.gather import gather
from infradoc.report.post_mortem import diagnose_artefacts

GOOD = """INFO 10-31 21:34:30 [api_server.py:1839] vLLM API server version 0.11.0
INFO 10-31 21:34:31 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'port': 8001}
INFO 10-31 21:35:30 [kv_cache_utils.py:1087] GPU KV cache size: 104,208 tokens
INFO 10-31 21:36:00 [launcher.py:34] Starting vLLM API server 0 on http://0.0.0.0:8001
INFO:     Application startup complete.
INFO 10-31 21:37:00 [loggers.py:127] Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 100.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%
"""  # noqa: E501
CAUSE = "oom-kv-cache-too-small-for-max-len"


@pytest.fixture(scope="module")
def bad(cases_dir):
    """A start that fails, of 31 October 15:02 to 15:07; its port is the usual one."""
    return (cases_dir / "a006" / "server.log").read_text()


def _warned(report):
    return [finding["id"] for finding in report["findings"] if finding["severity"] != "info"]


def _prefixed(form, **texts):
    return "".join(
        form.format(name=name, line=line) + "\n" for name, text in texts.items() for line in text.splitlines()
    )


def test_a_healthy_later_server_hides_no_failed_start(bad, write, catalog):
    report = diagnose_artefacts(write(one__log=bad, two__log=GOOD), catalog)
    assert report["status"] == "unhealthy"
    assert _warned(report) == [CAUSE]
    assert report["findings"][0]["title"].endswith("(one.log)")
    assert report["not_visible"][0].startswith("These are 2 servers")
    assert "one.log (oom-kv" in report["not_visible"][0] and "two.log (nothing found)" in report["not_visible"][0]


def test_in_chinese(bad, write, catalog):
    report = diagnose_artefacts(write(one__log=bad, two__log=GOOD), catalog, "zh")
    assert "2 个服务" in report["not_visible"][0]


@pytest.mark.parametrize(
    "form", ["{name}  | {line}", "[pod/{name}-0/vllm] {line}", "{name}.log:7:{line}", "gpu1-{name}: {line}"]
)
def test_by_what_a_collector_put_in_front(form, bad, write, catalog):
    report = diagnose_artefacts(write(all__txt=_prefixed(form, one=bad, two=GOOD)), catalog)
    assert _warned(report) == [CAUSE]
    assert "one" in report["findings"][0]["title"]


def test_the_same_port_at_the_same_time(bad, write, catalog):
    good = GOOD.replace("8001", "8000").replace("10-31 21:3", "10-31 15:0")
    assert len(gather(write(one__log=bad, two__log=good)).servers) == 2


def test_a_later_attempt_is_the_same_server(bad, write, catalog):
    folder = write(one__log=bad, two__log=GOOD.replace("8001", "8000"))
    assert gather(folder).servers == []
    assert _warned(diagnose_artefacts(folder, catalog)) == []


@pytest.mark.parametrize(
    "texts",
    [
        {"one__log": "BAD", "copy__log": "BAD"},
        {"server__log__1": "GOOD", "server__log": "BAD"},
        {"one__log": "BAD", "two__log": GOOD.replace("'port': 8001", "'port': 8001, 'nnodes': 2, 'node_rank': 1")},
        {"one__log": "BAD", "client__txt": "connection to http://0.0.0.0:8001 refused"},
    ],
)
def test_copies_rotations_and_nodes_are_not_parted(texts, bad, write):
    assert (
        gather(write(**{name: {"BAD": bad, "GOOD": GOOD}.get(text, text) for name, text in texts.items()})).servers
        == []
    )


@pytest.mark.parametrize("names", [("launch-one.sh", "launch-two.sh"), ("x", "y")])
def test_each_launch_command_goes_to_its_server(names, bad, write):
    commands = ["vllm serve openai/gpt-oss-120b --port 8000", "vllm serve Qwen/Qwen3-8B --port 8001 --max-num-seqs 7"]
    files = {name.replace(".", "__"): text for name, text in zip(names, commands, strict=True)}
    one, two = gather(write(one__log=bad, two__log=GOOD, **files)).servers
    assert "max_num_seqs" not in one.facts
    assert two.facts["max_num_seqs"].value == 7


def test_a_refused_command_line_beside_a_healthy_server(write, catalog):
    refused = "$ vllm serve m --port 8002 --swap-spacex 4\nvllm serve: error: unrecognized arguments: --swap-spacex 4\n"
    report = diagnose_artefacts(write(one__txt=refused, two__log=GOOD), catalog)
    assert report["status"] != "ok"
    assert any("--swap-spacex" in line for line in report["not_visible"])
