"""The device under the engine: heat, power and hardware faults. Nothing here can be changed by the engine."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infradoc_rules.advise.base import Advice
from infradoc_rules.model import Action, Series

_HEAT = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal"})
# What a snapshot of `nvidia-smi` says (the fact gpu.throttled), as one of the reasons of the live source.
_AS_TOLD = {"heat": "hw_thermal", "power": "power_cap", "brake": "power_brake"}
_MOSTLY = 0.5  # of the window
# What to do by what the `detail` of an xid event asks for (`device: reset`), most drastic first.
_REMEDIES = {
    "reboot": (
        "power-cycle the host; if it happens again, check the GPU's seat, power and temperature, then replace it",
        "给主机断电重启；若 GPU 再次掉线，检查插槽、供电和温度，然后更换",
    ),
    "link": (
        "check the NVLink cables or bridges and the fabric manager, then reset the GPUs of that link",
        "检查 NVLink 线缆或桥接器和 fabric manager，然后复位该链路上的 GPU",
    ),
    "reset": (
        "drain the server and reset the GPU (nvidia-smi --gpu-reset)",
        "排空服务并复位 GPU（nvidia-smi --gpu-reset）",
    ),
    "restart": (
        "restart the server now, and drain and reset the GPU at the next chance",
        "现在重启服务，并尽早排空和复位 GPU",
    ),
}


def _throttled(advice: Advice) -> set[tuple[str, str]]:
    """(GPU, reason) of each reason that held for most of the window, by flags or by seconds."""
    found = set()
    gpu, told = advice.fact("gpu.throttled_gpu"), advice.fact("gpu.throttled")
    if told in _AS_TOLD:
        found.add((str(gpu), _AS_TOLD[str(told)]))
    for series in advice.frame.select("gpu_throttle_active"):
        values = [value for _, value in _recent(advice, series)]
        if values and sum(values) / len(values) > _MOSTLY:
            found.add((series.labels.get("gpu", "?"), series.labels.get("reason", "")))
    for series in advice.frame.select("gpu_throttled_seconds_total"):
        points = _recent(advice, series)
        if len(points) > 1 and points[-1][1] - points[0][1] > _MOSTLY * (points[-1][0] - points[0][0]):
            found.add((series.labels.get("gpu", "?"), series.labels.get("reason", "")))
    return found


def _recent(advice: Advice, series: Series) -> list[tuple[float, float]]:
    """(time, value) in the window, without stale markers and other NaN."""
    frame = advice.frame
    pairs = zip(series.times, series.values, strict=True)
    return [(t, v) for t, v in pairs if frame.now - frame.window <= t <= frame.now and not math.isnan(v)]


def _gpus(pairs: set[tuple[str, str]], reasons: frozenset[str]) -> str:
    return ", ".join(sorted({gpu for gpu, reason in pairs if reason in reasons}))


def fix_gpu_cooling(advice: Advice) -> Action | None:
    """Airflow, fans and inlet temperature, where heat is the reason."""
    gpus = _gpus(_throttled(advice), _HEAT)
    if not gpus:
        return None
    degrees = advice.read('max(gpu_temperature_celsius{sensor="die"})') or advice.number("gpu.hot")
    at = "" if degrees is None else f" ({degrees:.0f} °C)"
    return advice.action(
        "fix_gpu_cooling",
        why=advice.say(
            f"GPU {gpus} slows down for heat{at}: fans, dust, airflow, inlet temperature, neighbours in the rack",
            f"GPU {gpus} 因过热降频{at}：检查风扇、积尘、风道、进风温度和机架邻居",
        ),
        cost=advice.say(
            "callers are the losers while the host is out of service; until then fewer requests keep it cooler",
            "可能需要让主机停止服务；在此之前减少请求可降温",
        ),
    )


def raise_gpu_power_limit(advice: Advice) -> Action | None:
    """Back to the board's default, where the limit in force is lower; silent where it is the default already."""
    gpus = _gpus(_throttled(advice), frozenset({"power_cap"}))
    now = advice.read("min(gpu_power_limit_watts)") or advice.number("gpu.power_limit")
    default, most = advice.number("gpu.power_limit_default_watts"), advice.number("gpu.power_limit_max_watts")
    default = default or advice.number("gpu.power_default")
    known, default = default is not None, default or most
    if not gpus or now is None or default is None or default <= now * 1.02:
        return None
    return advice.action(
        "raise_gpu_power_limit",
        from_value=round(now),
        to_value=round(default),
        flag=f"nvidia-smi -i {gpus.replace(' ', '')} -pl {default:.0f}",
        why=advice.say(
            f"GPU {gpus} is limited to {now:.0f} W, the board's {'default' if known else 'maximum'} is {default:.0f} W",
            f"GPU {gpus} 的功耗上限为 {now:.0f} W，板卡{'默认值' if known else '最大值'}为 {default:.0f} W",
        ),
        cost=advice.say(
            f"up to {default - now:.0f} W more for each GPU: power budget and cooling of the rack are the losers",
            f"每个 GPU 最多增加 {default - now:.0f} W：代价是机架的供电预算和散热",
        ),
    )


def release_gpu_clocks(advice: Advice) -> Action | None:
    """Clocks as the driver chooses them, where they were fixed or got stuck in a low state."""
    if advice.fact("gpu.throttled") != "clocks":
        return None
    gpus, share = advice.fact("gpu.throttled_gpu"), advice.number("gpu.clock_share")
    at_en, at_zh = ("", "") if share is None else (f" at {share:.0%} of their maximum", f"只有最大值的 {share:.0%}")
    return advice.action(
        "release_gpu_clocks",
        to_value=False,
        flag=f"nvidia-smi -i {str(gpus).replace(' ', '')} --reset-gpu-clocks --reset-applications-clocks",
        why=advice.say(
            f"the clocks of GPU {gpus} stay{at_en} though it is busy, and neither heat nor power holds them",
            f"GPU {gpus} 忙碌时频率{at_zh or '仍偏低'}，且并非过热或功耗所致",
        ),
        cost=advice.say(
            "more power and heat: the rack's budget is the loser", "功耗和发热增加：受损的是机架的供电与散热预算"
        ),
    )


def service_gpu(advice: Advice) -> Action | None:
    """Drain, reset, repair or replace, as the newest driver errors ask; silent where heat or a limit explains it."""
    pairs = _throttled(advice)
    brake = _gpus(pairs, frozenset({"power_brake"}))
    if brake:
        why = advice.say(
            f"the power brake of GPU {brake} is pulled from outside: check power supplies, cables and the rack's limit",
            f"GPU {brake} 的外部功耗制动被触发：检查电源、线缆和机架限额",
        )
        return _service(advice, why)
    if advice.fact("gpu.throttled") == "clocks" and not advice.fact("gpu.failed"):
        return None
    if not advice.fact("gpu.failed") and pairs & {
        (gpu, reason) for gpu, reason in pairs if reason in _HEAT or reason == "power_cap"
    }:
        return None
    wanted = list(_wanted(advice))
    remedy = next((remedy for remedy in _REMEDIES if remedy in wanted), "reset")
    return _service(advice, "; ".join([*_named(advice), advice.say(*_REMEDIES[remedy])]))


def _service(advice: Advice, why: str) -> Action:
    return advice.action(
        "service_gpu",
        why=why,
        cost=advice.say(
            "the server is down meanwhile: move its traffic first; callers without another replica are the losers",
            "期间服务不可用：先迁走流量；没有其他副本的调用方受损",
        ),
    )


def widen_slot(advice: Advice) -> Action | None:
    """All lanes for a card that has a few of them. None where its slot is not what slows the job down."""
    now, most = advice.number("pcie.width"), advice.number("pcie.width_max")
    if advice.fact("comm.narrow_slot") is not True or not now or not most:
        return None
    return advice.action(
        "service_gpu",
        from_value=f"x{now:.0f}",
        to_value=f"x{most:.0f}",
        why=advice.say(
            f"the card runs at x{now:.0f} of x{most:.0f}: seat it and its riser again, use a slot wired for all lanes, "
            "and look at the BIOS for a slot that is split",
            f"该卡运行在 x{now:.0f}（最多 x{most:.0f}）：重新插紧卡和转接卡，换到全通道插槽，并查看 BIOS 是否拆分插槽",
        ),
        cost=advice.say(
            "the host is down meanwhile: its callers are the losers; another card may lose lanes to it",
            "期间主机停机：受损的是其调用方；其他卡可能因此减少通道",
        ),
    )


def _named(advice: Advice) -> list[str]:
    """The newest hardware event in words, if there is one."""
    for event in reversed(advice.frame.events):
        gpu = event.fields.get("gpu", event.fields.get("pci"))
        place = "" if gpu is None else str(gpu).rstrip(":.")
        en, zh = (f"GPU {place}", f"GPU {place}") if place else ("a GPU", "GPU")
        if event.name == "gpu_lost":
            return [advice.say(f"{en} is lost", f"{zh} 已丢失")]
        if event.name == "xid" and str(event.fields.get("detail", "")).startswith("device"):
            code, name = event.fields.get("code"), event.fields.get("name", "")
            return [advice.say(f"Xid {code} on {en} ({name})", f"{zh} 报告 Xid {code}")]
    return []


def _wanted(advice: Advice) -> Iterator[str]:
    told = advice.fact("gpu.failed_remedy")
    if isinstance(told, str):
        yield told
    for event in advice.frame.events:
        if event.name == "gpu_lost":
            yield "reboot"
        elif event.name == "xid":
            kind, _, remedy = str(event.fields.get("detail", "")).partition(": ")
            if kind == "device":
                yield remedy
    if (advice.read("sum(increase(gpu_nvlink_errors_total[$long]))") or 0) > 0:
        yield "link"
