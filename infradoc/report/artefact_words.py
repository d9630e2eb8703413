"""The fixed words of reports on logs and other artefacts, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

_EN = {
    "vitals": "{names}: not in what was given",
    "not_judged": "not judged from what was given: {ids}",
    "failed_start": "The start breaks off in the phase {phase} ({source}: {text}); no rule explains why.",
    "broke_off": "Something failed ({source}: {text}); no rule explains why.",
    "of_server": "{title} ({server})",
    "several": "These are {count} servers, and each was judged by itself: {servers}.",
    "several_ok": "nothing found",
    "several_unknown": "cannot tell",
    "refused_flag": "The start was refused: {who} does not know {flag} ({source}). {hint}",
    "refused_value": "The start was refused: {who} does not take the value that {flag} was given ({source}). {hint}",
    "refused_by": "the program",
    "refused_known": "There it is written {spelling}.",
    "refused_near": "The nearest that it knows is {spelling}.",
    "refused_other": "It is a flag of {others}; {engine} has no such setting.",
    "refused_later": "It comes with version {version}.",
    "refused_ended": "From {version} on it is gone or without effect, and nothing took its place: leave it out.",
    "refused_help": "Compare it with what `--help` or the documentation of that version lists.",
    "not_understood": "Nothing in what was given could be understood as a server's or trainer's output.",
    "bring_log": "What would decide: the log of the server or trainer from its start, with the first error.",
    "bring_metrics": "What would decide more: a metrics page taken while it is slow, or `infradoc record URL -o FILE`.",
    "bring_launch": "What would sharpen the advice: the launch command.",
    "unknown_phase": "unknown",
    "what_target.version": "engine version",
    "what_target.engine_api": "engine generation",
    "what_model.name": "model",
    "what_model_checkpoint": "model",
    "what_gpu.name": "GPU",
    "what_gpu.count": "number of GPUs",
    "what_driver_version": "GPU driver",
    "what_torch_version": "PyTorch",
    "what_nccl.version": "NCCL",
    "what_target.device": "device",
}

_ZH = {
    "vitals": "{names}：提供的材料中没有",
    "not_judged": "凭现有材料无法判断：{ids}",
    "failed_start": "启动在 {phase} 阶段中断（{source}：{text}），没有规则能解释原因。",
    "broke_off": "有组件失败（{source}：{text}），没有规则能解释原因。",
    "of_server": "{title}（服务 {server}）",
    "several": "这里有 {count} 个服务，已分别判断：{servers}。",
    "several_ok": "未发现问题",
    "several_unknown": "无法判断",
    "refused_flag": "启动被拒绝：{who} 不认识参数 {flag}（{source}）。{hint}",
    "refused_value": "启动被拒绝：{who} 不接受 {flag} 的取值（{source}）。{hint}",
    "refused_by": "该程序",
    "refused_known": "该版本中的写法是 {spelling}。",
    "refused_near": "它认识的最接近的写法是 {spelling}。",
    "refused_other": "这是 {others} 的参数；{engine} 没有这项设置。",
    "refused_later": "该参数从版本 {version} 起才有。",
    "refused_ended": "从版本 {version} 起已移除或不再生效，没有替代项，去掉即可。",
    "refused_help": "请对照该版本 `--help` 或文档列出的参数。",
    "not_understood": "提供的材料中没有可识别的服务或训练输出。",
    "bring_log": "要作出判断，需要服务或训练从启动开始的日志，包含第一条错误。",
    "bring_metrics": "要进一步判断，需要变慢时的 metrics 页面，或 `infradoc record URL -o FILE` 的录制。",
    "bring_launch": "提供启动命令可以让建议更准确。",
    "unknown_phase": "未知",
    "what_target.version": "引擎版本",
    "what_target.engine_api": "引擎代际",
    "what_model.name": "模型",
    "what_model_checkpoint": "模型",
    "what_gpu.name": "GPU 型号",
    "what_gpu.count": "GPU 数量",
    "what_driver_version": "GPU 驱动",
    "what_torch_version": "PyTorch 版本",
    "what_nccl.version": "NCCL 版本",
    "what_target.device": "设备",
}


def artefact_words(lang: str) -> Mapping[str, str]:
    """All fixed words of a language; English for any other than Chinese."""
    return _ZH if lang == "zh" else _EN
