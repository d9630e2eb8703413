"""`infradoc fit`: the answer, its exit code, and one sentence for what it cannot judge."""

from __future__ import annotations

import json
import re

import pytest

from infradoc.cli.app import dispatch
from infradoc.cli.fit import run
from infradoc.cli.fit_words import EN, ZH

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "head_dim": 64,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
MLLAMA = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    },
    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 40, "intermediate_size": 5120},
}  # fmt: skip


def test_it_fits(capsys):
    assert run(["Qwen2.5-7B-Instruct", "--gpu", "H100", "--max-model-len", "32K"]) == 0
    text = capsys.readouterr().out
    assert "Qwen2.5-7B (7.62 B) on 1 x H100, bfloat16, 32,768 tokens" in text
    assert "Fits:" in text and "57,344 bytes" in text and "Nearest" not in text


def test_it_does_not_fit_and_what_would(capsys):
    argv = [
        "--gpu",
        "H100",
        "--tp",
        "2",
        "--max-model-len",
        "32768",
        "--max-num-seqs",
        "256",
        "--engine-version",
        "0.11",
    ]
    assert run(["llama-3.1-70b", *argv]) == 20
    text = capsys.readouterr().out
    assert "needs 5.00 GiB" in text and "It is close" in text
    assert "--tensor-parallel-size 4" in text and "--gpu-memory-utilization 0.92" in text
    assert "no constant was set on" in text


def test_json_says_the_same(capsys):
    assert run(["llama-3.1-70b", "--gpu", "H100", "--tp", "2", "--max-model-len", "32768", "--format", "json"]) == 20
    data = json.loads(capsys.readouterr().out)
    assert data["fits"] is False and data["problem"] == "kv_too_small" and data["gpus"] == 2
    assert data["bytes"]["needed"] == 32768 * 327_680 // 2
    assert all(one["requests"] >= 1 for one in data["nearest"])
    parts = data["bytes"]
    inside = parts["graphs"] if parts["graphs_inside"] else 0
    assert parts["kv"] == parts["budget"] - parts["weights"] - parts["activation"] - parts["engine"] - inside
    assert data["kv_tokens"] == max(0, parts["kv"] // parts["kv_per_token"])
    assert data["held_out"]["starts"] > 20 and data["held_out"]["kv_gib_nine_of_ten"] < data["held_out"]["kv_gib_worst"]


def _kv(capsys, *argv):
    code = run(["Qwen3-8B", "--gpu", "4090", "--max-model-len", "8192", "--format", "json", *argv])
    data = json.loads(capsys.readouterr().out)
    assert code == (0 if data["fits"] else 20)
    return data


def test_each_flag_counts(capsys):
    plain = _kv(capsys)
    assert _kv(capsys, "--enforce-eager")["kv_bytes"] == plain["kv_bytes"] + plain["bytes"]["graphs"]
    assert _kv(capsys, "--kv-cache-dtype", "fp8")["kv_tokens"] == pytest.approx(2 * plain["kv_tokens"], rel=1e-4)
    assert _kv(capsys, "--max-num-seqs", "1024")["bytes"]["activation"] > plain["bytes"]["activation"]
    assert _kv(capsys, "--max-num-batched-tokens", "32K")["bytes"]["activation"] > plain["bytes"]["activation"]
    assert _kv(capsys, "--quantization", "awq")["bytes"]["weights"] < 0.5 * plain["bytes"]["weights"]
    assert _kv(capsys, "--dtype", "float32")["bytes"]["weights"] > 1.9 * plain["bytes"]["weights"]
    # 0.92 of the memory since 0.22; before 0.21 the graphs were beside the fraction.
    assert _kv(capsys, "--engine-version", "v0.11.2")["bytes"]["budget"] < plain["bytes"]["budget"]
    assert _kv(capsys, "--engine-version", "0.20.1rc1")["bytes"]["graphs_inside"] is False


def test_a_checkpoint_tells_its_width_itself(capsys):
    sizes = []
    for argv in (
        ["--quantization", "compressed-tensors"],
        [],
        ["--quantization", "modelopt"],
        ["--quantization", "fp8"],
    ):
        run(["Llama-3.1-8B-Instruct-FP8", "--gpu", "L4", "--max-model-len", "4096", "--format", "json", *argv])
        sizes.append(json.loads(capsys.readouterr().out)["bytes"]["weights"])
    assert len(set(sizes)) == 1


def test_a_model_with_images(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(MLLAMA))
    results = []
    for model in ("meta-llama/Llama-3.2-11B-Vision-Instruct", str(tmp_path / "config.json")):
        assert run([model, "--gpu", "A100 80GB", "--max-model-len", "8192", "--format", "json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["parameters"] == results[1]["parameters"] == pytest.approx(10.6e9, rel=0.02)


def test_chinese(capsys):
    assert run(["gpt-oss-120b", "--gpu", "H100", "--lang", "zh"]) == 20
    assert "放不下" in capsys.readouterr().out
    assert EN.keys() == ZH.keys()
    for key, text in EN.items():
        assert sorted(re.findall(r"{\w+", text)) == sorted(re.findall(r"{\w+", ZH[key])), key


def test_a_folder_and_a_file_give_what_the_name_gives(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    results = []
    for model in ("Llama-3.2-1B", str(folder), str(folder / "config.json")):
        assert run([model, "--gpu", "L4", "--format", "json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert [one["model"] for one in results] == ["Llama-3.2-1B", "mine", "mine"]
    assert results[0]["bytes"] == results[1]["bytes"] == results[2]["bytes"]


def test_a_length_beyond_the_model_is_said(capsys):
    assert run(["Llama-3-8B", "--gpu", "H100", "--max-model-len", "16384"]) == 0
    assert "only 8,192 positions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["qwen3:30b", "--gpu", "H100"], "Qwen3-30B-A3B"),
        (["nowhere/config.json", "--gpu", "H100"], "neither a file here nor a model"),
        (["Llama-3-8B", "--gpu", "potato"], "There is no GPU 'potato'"),
        (["Llama-3-8B", "--gpu", "H100", "--tp", "3"], "cannot be shared by 3 GPUs"),
        (["Llama-3-8B", "--gpu", "H100", "--tp", "0"], "no whole number"),
        (["Llama-3-8B", "--gpu", "H100", "--max-model-len", "much"], "no whole number"),
        (["Llama-3-8B", "--gpu", "H100", "--gpu-memory-utilization", "nan"], "no share of the memory"),
        (["Llama-3-8B", "--gpu", "H100", "--gpu-memory-utilization", "90"], "no share of the memory"),
        (["Llama-3-8B", "--gpu", "H100", "--dtype", "int3"], "invalid choice"),
        (["Llama-3-8B", "--gpu", "H100", "--engine-version", "latest"], "no version"),
        (["Llama-3-8B", "--gpu", "H100", "--engine-version", "9" * 80], "no version"),
        (["Llama-3-8B"], "--gpu"),
        (["x" * 5000, "--gpu", "H100"], "Give"),
        (["a\0b", "--gpu", "H100"], "Give"),
    ],
)
def test_usage_is_one_sentence(argv, told, capsys):
    assert dispatch(["fit", *argv]) == 2
    errors = capsys.readouterr().err
    assert told in errors and errors.startswith("infradoc: ") and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", "'num_hidden_layers'"),
        (json.dumps(CONFIG | {"hidden_size": 1e99}).encode(), "'hidden_size'"),
        (json.dumps(CONFIG | {"torch_dtype": "odd"}).encode(), "type 'odd'"),
        (json.dumps(CONFIG | {"layer_types": ["mamba"]}).encode(), "layers of type 'mamba'"),
        (b" " * (5 << 20), "larger than any"),
    ],
)
def test_a_damaged_config_is_one_sentence(content, told, tmp_path, capsys):
    (tmp_path / "config.json").write_bytes(content)
    assert dispatch(["fit", str(tmp_path), "--gpu", "H100"]) == 2
    errors = capsys.readouterr().err
    assert told in errors and errors.count("\n") == 1


def test_a_folder_without_a_config(tmp_path, capsys):
    assert dispatch(["fit", str(tmp_path), "--gpu", "H100"]) == 2
    assert "There is no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Qwen2.5-7B-Instruct", "--gpu", "4x H100"], "Add --tp 4"),
        (["Qwen2.5-7B-Instruct", "--gpu", "8 * A100 80GB"], "Add --tp 8"),
        (["~nobody-of-that-name/config.json", "--gpu", "H100"], "cannot be read"),
        (["/" + "y" * 5_000, "--gpu", "H100"], "cannot be read: File name too long"),
    ],
)
def test_what_is_meant_otherwise_is_refused(words, said, capsys):
    assert dispatch(["fit", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and len(err) < 400 and ".." not in err


def test_a_device_without_bfloat16_is_told_with_the_flag(capsys):
    assert run(["Qwen2.5-1.5B", "--gpu", "T4", "--max-model-len", "4096"]) == 0
    text = capsys.readouterr().out
    assert "float16, 4,096 tokens" in text and "start with --dtype float16" in text and "capability 7.5" in text
    run(["Qwen2.5-1.5B", "--gpu", "T4", "--max-model-len", "4096", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["must_set"] == {"dtype": "float16"}
    run(["Qwen2.5-1.5B", "--gpu", "L4", "--max-model-len", "4096", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["must_set"] == {}
    run(["Qwen2.5-1.5B", "--gpu", "T4", "--max-model-len", "4096", "--lang", "zh"])
    assert "请加 --dtype float16" in capsys.readouterr().out
    assert dispatch(["fit", "Qwen2.5-1.5B", "--gpu", "T4", "--dtype", "bfloat16"]) == 2
    assert capsys.readouterr().err == "infradoc: T4 (compute capability 7.5) has no bfloat16. Use --dtype float16.\n"


def test_several_changes_are_shown_with_what_they_give(capsys):
    assert run(["qwen3-30b-a3b", "--gpu", "4090"]) == 20
    text = capsys.readouterr().out
    rows = text.split("Several changes at once that fit:\n")[1].splitlines()[:3]
    assert all(
        re.search(r"^  --.*, a 4-bit checkpoint \(AWQ or GPTQ\): [\d.]+ requests of [\d,]+ tokens", row) for row in rows
    )
    run(["qwen3-30b-a3b", "--gpu", "4090", "--format", "json"])
    combined = json.loads(capsys.readouterr().out)["combined"]
    assert len(combined) == 3 and all(len(one["change"]) > 1 and one["requests"] >= 1 for one in combined)


def test_an_fp8_checkpoint_is_named(capsys):
    assert run(["llama-3.1-70b", "--gpu", "H100", "--tp", "2"]) == 20
    assert "  an FP8 checkpoint: 1.7 requests of 131,072 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "is an encoder"),
        ({"model_type": "whisper"}, "is an encoder"),
        ({"model_type": "mamba"}, "keep a state"),
        ({"model_type": "foo", "architectures": ["FooForCausalLM"]}, "models of the kind 'foo'"),
    ],
)
def test_a_kind_that_is_not_covered_is_one_sentence(more, told, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | more))
    assert dispatch(["fit", str(tmp_path), "--gpu", "H100"]) == 2
    said = capsys.readouterr()
    assert told in said.err and "does not cover" in said.err and said.out == "" and len(said.err.splitlines()) == 1
