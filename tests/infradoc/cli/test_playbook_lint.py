"""The lint of what pages tell people to type: each fault of a kind is found, in either language, by the command."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import pytest

import infradoc_playbooks
from infradoc.cli import playbook_lint
from infradoc.cli.app import dispatch

FLAGS = Path(__file__).parents[2] / "data" / "flags"
NAME = "kv-thrashing-preemption"


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A copy of the pages that a test may spoil."""
    for folder in ("catalog", "mechanisms"):
        shutil.copytree(str(resources.files("infradoc_playbooks") / folder), tmp_path / folder)
    monkeypatch.setattr(infradoc_playbooks, "_folder", lambda name: tmp_path / name)
    return tmp_path


def test_all_pages_are_sound():
    assert playbook_lint.problems() == []


FAULTS = {
    "`--num-gpu-blocks-overrides 800`": "--num-gpu-blocks-overrides is no flag",
    "用`--max-num-seq`限制": "--max-num-seq is no flag",
    "see vllm:num_request_waiting": "vllm:num_request_waiting is no metric",
    "看llm_kv_pol_tokens的值": "llm_kv_pol_tokens is no metric",
    "`tgi_queue_length`": "tgi_queue_length is no metric",
    '`sglang:num_running_req{model="m"}`': "sglang:num_running_req is no metric",
    "`curl -s http://HOST:PORT/metrics | grep -E 'requests_(running|wating)x|kv_cache'`": "no metric's name holds",
    "`curl -s http://HOST:PORT/metrics | grep preemption_total`": "'preemption_total' is searched for",
    "`infradoc playbook nowhere`": "there is no page 'nowhere'",
    "`infradoc diagnos URL`": "there is no command 'diagnos'",
    "`infradoc fix TARGET --finding kv-trashing --apply`": "there is no finding 'kv-trashing'",
    "`infradoc bench --duration 30s`": "required: URL",
    "`infradoc bench URL --class 'a:closed=2; b:closed=3'`": "is not accepted",
    "```sh\nkubectl logs x | infradoc diagnose - --format yaml\n```\n": "is not accepted",
    "```sh\nsleep 5 && infradoc tui\n```\n": None,
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_named(text):
    says = FAULTS[text]
    found = playbook_lint.faults(f"Some text.\n\n{text}\n")
    assert found == [] if says is None else len(found) == 1 and says in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "`--num-gpu-blocks-override` `--kv-pool-tokens` `--no-chunked-prefill` `--finding` `--query-gpu=name`",
        'vllm:num_requests_waiting, `vllm:time_to_first_token_seconds_bucket{le="1"}`, vllm:*, llm_step_tokens',
        "`infradoc watch`, `infradoc playbook ID`, `infradoc playbook watermark --lang zh`",
        "`infradoc fix TARGET --finding ID`, `infradoc fit MODEL --gpu GPU`, `infradoc serve --max-num-seqs 4`",
        "```\ninfradoc bench URL \\\n  --class chat:closed=N,...   # twice as many\n```\n",
        "`curl -s http://HOST:PORT/metrics | grep -E 'requests_(running|waiting)|state=\"leaked\"'`",
    ],
)
def test_what_is_there_is_left_alone(text):
    assert playbook_lint.faults(text) == []


@pytest.mark.parametrize("lang", infradoc_playbooks.LANGUAGES)
def test_the_command_finds_them(lang, pages, capsys):
    page = pages / "catalog" / f"{NAME}.{lang}.md"
    page.write_text(page.read_text().replace("--num-gpu-blocks-override", "--num-gpu-blocks-overrides"))
    assert dispatch(["rules", "lint"]) == 1
    assert f"playbook {NAME} ({lang}): --num-gpu-blocks-overrides is no flag" in capsys.readouterr().out


@pytest.mark.parametrize("lang", infradoc_playbooks.LANGUAGES)
@pytest.mark.parametrize(("folder", "name"), [("catalog", NAME), ("mechanisms", "watermark")])
def test_a_missing_page_is_one_sentence(folder, name, lang, pages, capsys):
    (pages / folder / f"{name}.{lang}.md").unlink()
    assert dispatch(["rules", "lint"]) == 1
    assert capsys.readouterr().out.splitlines() == [f"playbook {name}: the page {name}.{lang}.md is missing."]
    assert dispatch(["playbook", name, "--lang", lang]) == 2
    said = capsys.readouterr().err
    assert f"{folder}/{name}.{lang}.md is missing" in said and "Internal error" not in said
    assert dispatch(["playbook", "--lang", lang]) == 2


def test_flags_of_engines_are_in_their_lists():
    """What knobs.yaml and versions.yaml let through is a flag of a parser that was looked at, too."""
    lists = {
        line.split()[0] for file in FLAGS.glob("*.txt") for line in file.read_text().splitlines() if line[:2] == "--"
    }
    others = {"--bf16", "--fp16", "--gradient_accumulation_steps", "--ddp_timeout"}  # of trainers
    others |= {"--cpus", "--gpus", "--ipc", "--memory", "--shm-size"}  # of containers
    others |= {"--max-concurrency"}  # of the load generators of vLLM and SGLang
    named = set()
    for name in (*infradoc_playbooks.ids(), *infradoc_playbooks.mechanisms()):
        for lang in infradoc_playbooks.LANGUAGES:
            named |= set(playbook_lint._FLAG.findall(infradoc_playbooks.get(name, lang)))
    own = playbook_lint.own_flags()
    assert named - lists - own - others - set(playbook_lint.FOREIGN) == set()


def test_every_foreign_flag_is_in_a_page():
    text = "".join(infradoc_playbooks.get(name) for name in infradoc_playbooks.ids())
    assert [flag for flag in playbook_lint.FOREIGN if flag not in text] == []
