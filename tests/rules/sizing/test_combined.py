"""Several changes at once, and what a device can compute with."""

from __future__ import annotations

import pytest

from infradoc_rules.sizing.account import account
from infradoc_rules.sizing.combined import SHOWN, cost, proposals
from infradoc_rules.sizing.gpus import gpu_named, known_gpus
from infradoc_rules.sizing.known import known_model
from infradoc_rules.sizing.setting import Setting
from infradoc_rules.sizing.supported import four_bits, has_bfloat16, has_fp8, refused, startable


def _proposed(name, gpu, gpus=1, **more):
    model = known_model(name)
    setting = startable(model, Setting(gpu_named(gpu), tensor_parallel=gpus, **more))
    singles, together = proposals(model, setting)
    return model, setting, singles, together


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("gpu", ["T4", "V100 16GB", "4090", "A100 40GB", "H100", "MI300X", "P40"])
@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-30B-A3B", "gemma-3-27b", "DeepSeek-V3"])
def test_all_that_is_proposed_fits_and_the_device_can(name, gpu, gpus):
    model, setting, singles, together = _proposed(name, gpu, gpus)
    if not account(model, setting).problem:
        return
    assert len(together) <= SHOWN
    costs = [cost(one, setting, model) for one in together]
    assert costs == sorted(costs)
    for one in [*singles, *together]:
        assert not account(model, one.setting).problem and one.account.requests >= 1
        change = dict(one.changed)
        assert change.get("quantization") != "fp8" or has_fp8(setting.gpu)
        assert change.get("quantization") in (None, "fp8", four_bits(setting.gpu))
        assert "kv_cache_dtype" not in change or has_bfloat16(setting.gpu)
        assert refused(model, one.setting) is None
    for place, one in enumerate(together):
        assert len(one.changed) > 1
        for other in [*singles, *together[:place]]:
            more = set(one.changed) > set(other.changed)
            assert not more or one.account.max_model_len > other.account.max_model_len


def test_a_large_model_on_a_small_card_takes_four_bits_and_a_shorter_length():
    _, _, singles, together = _proposed("Qwen3-30B-A3B", "4090")
    assert [one.changed for one in singles] == [(("tensor_parallel_size", "4"),)]
    assert {"max_model_len", "quantization"} in [set(dict(one.changed)) for one in together]
    assert len(together) == SHOWN and all(dict(one.changed)["quantization"] == "awq" for one in together)


def test_an_fp8_checkpoint_is_named_where_the_device_computes_in_it():
    _, _, singles, _ = _proposed("Llama-3.1-70B", "H100", 2)
    assert (("quantization", "fp8"),) in [one.changed for one in singles]
    _, _, singles, _ = _proposed("Llama-3.1-70B", "A100 80GB", 2)
    assert (("quantization", "fp8"),) not in [one.changed for one in singles]
    _, _, singles, _ = _proposed("DeepSeek-V3", "H100", 8)  # has eight bits already
    assert (("quantization", "fp8"),) not in [one.changed for one in singles]


def test_what_a_flag_mends_needs_no_combination():
    assert _proposed("gpt-oss-120b", "H100")[3] == []


def test_a_device_without_bfloat16_takes_float16_or_what_the_model_can():
    t4, v100 = gpu_named("T4"), gpu_named("V100")
    llama, gemma = known_model("Llama-3.1-8B"), known_model("Gemma-3-4B")
    assert startable(llama, Setting(t4)).dtype == startable(llama, Setting(v100)).dtype == "float16"
    assert startable(gemma, Setting(t4)).dtype == "float32"
    assert startable(known_model("Llama-2-7B"), Setting(t4)).dtype is None  # a float16 checkpoint
    assert startable(llama, Setting(gpu_named("L4"))).dtype is None
    assert refused(llama, Setting(t4, dtype="bfloat16")) == "float16"
    assert refused(gemma, Setting(t4, dtype="bfloat16")) == "float32"
    assert refused(llama, Setting(t4)) is refused(llama, Setting(gpu_named("A10"), dtype="bfloat16")) is None


def test_a_model_that_overflows_in_float16_has_no_four_bits_there():
    _, _, singles, together = _proposed("Gemma-3-4B", "T4")
    assert all("quantization" not in dict(one.changed) for one in [*singles, *together])


def test_capabilities():
    names = {gpu.name for gpu in known_gpus() if not has_bfloat16(gpu)}
    assert names == {"RTX 2080 Ti 22GB", "RTX 2080 Ti", "T4", "V100 16GB", "V100 32GB", "P100", "P40"}
    assert not has_fp8(gpu_named("A100")) and has_fp8(gpu_named("L4")) and has_fp8(gpu_named("MI300X"))
    assert not has_fp8(gpu_named("MI250X"))
    assert [four_bits(gpu_named(name)) for name in ("T4", "V100", "P40")] == ["awq", "gptq", "gptq"]
