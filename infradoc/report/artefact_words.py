"""The fixed words of reports on logs and other artefacts, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

_EN = {
    "vitals": "{names}: not in what was given",
    "not_judged": "not judged from what was given: {ids}",
    "failed_start": "The start breaks off in the phase {phase} ({source}: {text}); no rule explains why.",
    "failed_at": "It fails at {source} ({text}), and nothing shows how far it had come: the phase is unknown.",
    "oom_what": "Device memory ran out: {numbers}.",
    "oom_wanted": "{size} were asked for",
    "oom_free": "{size} of {total} were free",
    "oom_own": "the process itself held {size}",
    "oom_decides": (
        "What would decide: the launch command, and the lines before the error (was it still starting, or serving?);"
        " who held the rest, `nvidia-smi` shows."
    ),
    "echo_decides": "What would decide: this line repeats another process's failure; the first error stands above it.",
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
    "ends_in_error": "Cannot tell: it ends in an error that no rule knows ({source}: {text}).",
    "answers_failed": (
        "Cannot tell: {count} of {total} requests were answered with a server error (for one: {source}: {text});"
        " the log of that moment would decide."
    ),
    "last_steps_broken": (
        "Cannot tell: the newest {count} logged step(s) have no sound loss ({source}: {text}); the next steps"
        " and the precision in use would decide."
    ),
    "not_ready": "Cannot tell: a start, and nothing that shows that the server answers; what follows would decide.",
    "nothing_ran": "Cannot tell: what was given shows nothing at work, only how it was set up or started.",
    "xid_alone": (
        "Cannot tell: Xid {code} ({source}: {text}) is most often a fault of the program, not of the card; the"
        " program's own log of that moment, and whether it comes back with another program, would decide."
    ),
    "workers_waited_for": (
        "Cannot tell: the engine waited {count} times for a worker and nothing more followed ({source}: {text});"
        " the stack of each worker (`py-spy dump`) or a log with NCCL_DEBUG=INFO would decide."
    ),
    "peers_off": (
        "Cannot tell: GPUs copy without direct access to each other ({source}: {text}); `nvidia-smi topo -m`"
        " would show whether the hardware offers a faster way."
    ),
    "near_limit": (
        "Cannot tell: it holds nearly all of the memory that it may have ({source}: {text}); whether it grows,"
        " or was killed, a second reading would show."
    ),
    "host_near_limit": (
        "Cannot tell: {share} of the host's memory is in use ({source}); whether it grows, or something was"
        " killed, a second reading or `dmesg` would show."
    ),
    "not_understood": "Nothing in what was given could be understood as a server's or trainer's output.",
    "bring_log": "What would decide: the log of the server or trainer from its start, with the first error.",
    "bring_metrics": "What would decide more: a metrics page taken while it is slow, or `infradoc record URL -o FILE`.",
    "bring_launch": "What would sharpen the advice: the launch command.",
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
    "failed_at": "在 {source} 处失败（{text}），看不出之前进行到哪一步：阶段未知。",
    "oom_what": "显存不足：{numbers}。",
    "oom_wanted": "申请了 {size}",
    "oom_free": "{total} 中空闲 {size}",
    "oom_own": "进程自身占用 {size}",
    "oom_decides": (
        "要作出判断，需要启动命令和错误之前的日志（当时仍在启动还是已在服务）；其余显存被谁占用可用 `nvidia-smi` 查看。"
    ),
    "echo_decides": "要作出判断：这一行只是转述另一进程的失败，第一条错误在它之前。",
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
    "ends_in_error": "无法判断：材料以一条规则不认识的错误结尾（{source}：{text}）。",
    "answers_failed": (
        "无法判断：{total} 个请求中有 {count} 个收到服务端错误（例如：{source}：{text}）；需要当时的日志。"
    ),
    "last_steps_broken": (
        "无法判断：最近 {count} 个记录步没有正常的损失值（{source}：{text}）；需要后续的步和所用精度。"
    ),
    "not_ready": "无法判断：只有启动过程，看不到服务已能应答；需要后面的日志。",
    "nothing_ran": "无法判断：提供的材料只说明如何配置或启动，看不到任何运行情况。",
    "xid_alone": (
        "无法判断：Xid {code}（{source}：{text}）多半是程序的错误而非显卡故障；需要该程序当时的日志，"
        "以及换一个程序是否重现。"
    ),
    "workers_waited_for": (
        "无法判断：引擎等待 worker {count} 次，之后没有任何进展（{source}：{text}）；"
        "需要各 worker 的调用栈（`py-spy dump`）或带 NCCL_DEBUG=INFO 的日志。"
    ),
    "peers_off": (
        "无法判断：GPU 之间没有直接访问（{source}：{text}）；`nvidia-smi topo -m` 可以说明硬件是否有更快的路径。"
    ),
    "near_limit": "无法判断：进程几乎用满了允许的内存（{source}：{text}）；再取一次读数才能知道是否在增长或被终止过。",
    "host_near_limit": (
        "无法判断：主机内存已用 {share}（{source}）；需要第二次读数或 `dmesg` 才能知道是否在增长或有进程被终止。"
    ),
    "not_understood": "提供的材料中没有可识别的服务或训练输出。",
    "bring_log": "要作出判断，需要服务或训练从启动开始的日志，包含第一条错误。",
    "bring_metrics": "要进一步判断，需要变慢时的 metrics 页面，或 `infradoc record URL -o FILE` 的录制。",
    "bring_launch": "提供启动命令可以让建议更准确。",
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
