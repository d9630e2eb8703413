"""Paths between GPUs and hosts: show them to the container, allow them, or go around the broken one."""

from __future__ import annotations

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action
from infradoc_rules.summaries.hangs import is_told_cure


def _reason(advice: Advice) -> str:
    return str(advice.fact("comm.slow_path"))


def show_devices(advice: Advice) -> Action | None:
    """Device nodes and GPUs that the container lacks; None where a setting is the reason."""
    reason = _reason(advice)
    if reason == "ib_not_used":
        return advice.action(
            "show_devices",
            to_value="/dev/infiniband",
            flag="--device /dev/infiniband:/dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1",
            why=advice.say(
                "the host has RDMA cards, NCCL finds none: device nodes (or libibverbs) are missing in the container",
                "主机有 RDMA 网卡而 NCCL 找不到：容器内缺少其设备节点（或 libibverbs）",
            ),
            cost=advice.say(
                "the container gets raw access to the fabric: isolation is the loser",
                "容器获得对网络结构的直接访问：隔离性受损",
            ),
        )
    if reason in ("local_over_net", "local_over_shm"):
        return advice.action(
            "show_devices",
            to_value="all GPUs of the node",
            flag="--gpus all --ipc=host",
            why=advice.say(
                "CUDA IPC needs both GPUs visible in each process: give every container all GPUs and pick one by rank, "
                "or run all ranks in one container",
                "CUDA IPC 要求每个进程都能看到两块 GPU：让每个容器看到全部 GPU 并按 rank 选用，"
                "或把所有 rank 放进一个容器",
            ),
            cost=advice.say(
                "containers can reach each other's GPUs: isolation is the loser", "容器之间可互相访问 GPU：隔离性受损"
            ),
        )
    return None


def enable_peer_copies(advice: Advice) -> Action | None:
    """Where peer copies are switched off although NVLink is there."""
    reason = _reason(advice)
    if reason not in ("p2p_disabled", "no_peer_access", "local_over_shm"):
        return None
    off = reason == "p2p_disabled"
    return advice.action(
        "enable_peer_copies",
        from_value=False if off else None,
        to_value=True,
        flag="unset NCCL_P2P_DISABLE" if off else "NCCL_P2P_LEVEL=NVL",
        why=advice.say(
            "NCCL_P2P_DISABLE keeps the ranks off NVLink"
            if off
            else "NVLink joins the GPUs, yet they copy through the host",
            "NCCL_P2P_DISABLE 使各 rank 无法使用 NVLink" if off else "GPU 之间有 NVLink，却经主机拷贝",
        ),
        cost=advice.say(
            "if it was set against a hang, the run is the loser again: watch the first steps",
            "若当初是为避免挂起而设置，挂起可能重现：请观察最初几步",
        ),
    )


def enable_nccl_ib(advice: Advice) -> Action | None:
    """Where InfiniBand or RoCE is switched off by the environment."""
    if _reason(advice) != "ib_disabled":
        return None
    return advice.action(
        "enable_nccl_ib",
        from_value=False,
        to_value=True,
        flag="unset NCCL_IB_DISABLE",
        why=advice.say(
            "NCCL_IB_DISABLE=1 sends all traffic between hosts over TCP although RDMA cards are there",
            "NCCL_IB_DISABLE=1 使主机间流量全部走 TCP，而主机有 RDMA 网卡",
        ),
        cost=advice.say(
            "others on that fabric are the losers: they share its bandwidth", "与该网络上的其他任务共享带宽"
        ),
    )


def enable_host_rdma(advice: Advice) -> Action | None:
    """GPUDirect: the module between driver and network card."""
    reason = _reason(advice)
    if reason not in ("gdr_off", "ib_not_used"):
        return None
    return advice.action(
        "enable_host_rdma",
        to_value=True,
        flag="modprobe nvidia-peermem" if reason == "gdr_off" else None,
        why=advice.say(
            "GPUDirect RDMA is off: data takes the way through host memory"
            if reason == "gdr_off"
            else "check on the host that ibv_devinfo lists active ports, and that the RDMA modules are loaded",
            "GPUDirect RDMA 未启用：数据绕经主机内存"
            if reason == "gdr_off"
            else "在主机上确认 ibv_devinfo 能列出活动端口，且 RDMA 模块已加载",
        ),
        cost=advice.say(
            "modules are loaded on the host: jobs that run there meanwhile are the losers",
            "需在主机上加载模块：期间在该主机上运行的任务受影响",
        ),
    )


def set_network_interface(advice: Advice) -> Action | None:
    """Where NCCL took a bridge, a tunnel or the slower port between hosts."""
    if _reason(advice) != "wrong_interface":
        return None
    return advice.action(
        "set_network_interface",
        flag=advice.say("NCCL_SOCKET_IFNAME=<interface of the fast network>", "NCCL_SOCKET_IFNAME=<高速网络的接口>"),
        why=advice.say(
            "NCCL took a bridge, a tunnel or the slower port for traffic between hosts",
            "NCCL 在主机间选用了网桥、隧道或较慢的网口",
        ),
        cost=advice.say(
            "the traffic moves to that network: its other users are the losers", "流量转到该网络：与其他用户共享"
        ),
    )


def repair_link(advice: Advice) -> Action | None:
    """Where the links are there and all settings are right, and still the measured bandwidth is low."""
    if _reason(advice) != "slow_bus":
        return None
    return advice.action(
        "enable_peer_copies",
        to_value=True,
        flag="NCCL_P2P_LEVEL=NVL",
        why=advice.say(
            "the measured bus bandwidth is far below one NVLink: look at `nvidia-smi nvlink -s` for inactive links",
            "实测总线带宽远低于一条 NVLink：用 `nvidia-smi nvlink -s` 查看是否有未激活的链路",
        ),
        cost=advice.say(
            "if a link has to be repaired, jobs on this host are the losers meanwhile",
            "若需修复链路，期间此主机上的任务受损",
        ),
    )


def disable_acs(advice: Advice) -> Action | None:
    """ACS and the IOMMU redirect peer traffic to the root complex, where it stalls, crawls or arrives wrong.

    None where peer copies are refused: then there is no traffic to redirect.
    """
    hang = advice.fact("comm.hang")
    if hang == "refused":
        return None
    seen = ("direct copies are slow or never end", "直接拷贝很慢或无法结束")
    if hang != "slow":
        seen = ("ranks meet, then no byte moves", "各 rank 已连接但没有数据流动")
    return advice.action(
        "disable_acs",
        to_value=False,
        flag=advice.say(
            "iommu=pt (kernel command line), ACS off in the BIOS or by setpci",
            "iommu=pt（内核命令行），在 BIOS 或用 setpci 关闭 ACS",
        ),
        why=advice.say(
            f"{seen[0]}: PCIe access control or the IOMMU in translated mode redirects peer copies",
            f"{seen[1]}：PCIe 访问控制（ACS）或处于转换模式的 IOMMU 改变了对等拷贝的路径",
        ),
        cost=advice.say(
            "a reboot; virtual machines on this host are the losers: less isolation between their devices",
            "需要重启；此主机上的虚拟机失去设备间的隔离",
        ),
    )


def disable_peer_copies(advice: Advice) -> Action | None:
    """The test that decides, and a workaround; None where peer copies are off already."""
    if advice.fact("nccl_p2p") is False or _p2p_is_off(advice):
        return None
    return advice.action(
        "disable_peer_copies",
        to_value=False,
        # llama.cpp asks whether the variable is there, not what it holds.
        flag="GGML_CUDA_P2P unset" if advice.fact("env.GGML_CUDA_P2P") is not None else "NCCL_P2P_DISABLE=1",
        why=advice.say(
            "if the same run works with it, the peer path is the cause; it may stay as a workaround",
            "若设置后同样的任务能运行，则对等路径就是原因；也可作为临时办法保留",
        ),
        cost=advice.say(
            "copies go through host memory: every tensor-parallel step is the loser",
            "拷贝经主机内存：张量并行的每步变慢",
        ),
    )


def _p2p_is_off(advice: Advice) -> bool:
    return any(
        event.name == "nccl_setting"
        and event.fields.get("name") == "NCCL_P2P_DISABLE"
        and str(event.fields.get("value")).strip(".") == "1"
        and "lease set" not in (event.text or "")  # a message that asks for it
        and not is_told_cure(event)
        for event in advice.frame.events
    )
