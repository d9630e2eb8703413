from __future__ import annotations

import pytest
import torch
import triton

from infradoc_kernels import launch


@pytest.mark.parametrize(("n", "power"), [(1, 1), (2, 2), (3, 4), (576, 1024), (4096, 4096), (4097, 8192)])
def test_next_power_of_2(n: int, power: int) -> None:
    assert launch.next_power_of_2(n) == power


@pytest.mark.parametrize(("values", "warps"), [(1, 1), (256, 1), (512, 2), (2048, 8), (1 << 20, 16)])
def test_warps_give_each_thread_a_whole_load(values: int, warps: int) -> None:
    assert launch.warps_for(values) == warps


def test_a_tensor_on_no_gpu_is_refused_unless_triton_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    with launch.on_device(torch.zeros(1)):
        pass
    monkeypatch.setattr(triton.knobs, "propagate_env", False)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(ValueError, match="a Triton kernel got a tensor on cpu"):
        launch.on_device(torch.zeros(1))


def test_tensors_on_two_devices_are_named() -> None:
    launch.check_same_device(x=torch.zeros(1), y=torch.zeros(2))
    with pytest.raises(ValueError, match="all tensors must be on one device: x on cpu, y on meta"):
        launch.check_same_device(x=torch.zeros(1), y=torch.zeros(2, device="meta"))


def test_the_last_stride_matters_only_where_there_is_a_neighbour() -> None:
    launch.check_last_dim("x", torch.zeros(3, 8)[:, ::8])
    with pytest.raises(ValueError, match=r"x has strides \(8, 2\), the last one must be 1"):
        launch.check_last_dim("x", torch.zeros(3, 8)[:, ::2])
