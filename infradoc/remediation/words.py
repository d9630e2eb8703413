"""What `fix` and `undo` say, in English and Chinese: one pair a text, so that neither can be missing.

Names of knobs, flags, rules and verdicts are the same in both. Errors of the network, of files and of the command line
are English in every command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from infradoc.plurals import agreeing

TEXTS: Mapping[str, tuple[str, str]] = {
    # a finding
    "finding": (
        "finding: {id} ({severity}, confidence {confidence}): {title}",
        "诊断：{id}（{severity}，置信度 {confidence}）：{title}",
    ),
    "evidence": ("  evidence: {text}", "  证据：    {text}"),
    "cause": ("  cause:    {text}", "  原因：    {text}"),
    "falsifier": ("  wrong if: {text}", "  证伪条件：{text}"),
    "info": ("info", "提示"),
    "warning": ("warning", "警告"),
    "critical": ("critical", "严重"),
    # a plan
    "plan": ("plan:", "方案："),
    "plan_empty": ("plan: nothing to change", "方案：无需改动"),
    "left_out": ("  left out: {knob}: {reason}", "  未采用：{knob}：{reason}"),
    "step": (
        "  {place}. {change}  [{how}, {risk}{flag}]  for {finding}",
        "  {place}. {change}  [{how}，{risk}{flag}]  针对 {finding}",
    ),
    "step_flag": ("; {flag}", "；{flag}"),
    "why": ("     why:   {text}", "     理由：  {text}"),
    "cost": ("     cost:  {text}", "     代价：  {text}"),
    "loser": ("     loser: {text}", "     受损方：{text}"),
    "live": ("live", "在线生效"),
    "drain": ("live, through a drain", "在线生效，先排空"),
    "restart": ("restart", "需要重启"),
    "by_hand": ("by hand", "手动"),
    "read_only": ("read_only", "不改动服务"),
    "reversible": ("reversible", "可撤销"),
    "disruptive": ("disruptive", "会中断服务"),
    "no_way_back": ("{risk}, nothing to take back", "{risk}，无需撤销"),
    "and": (" and ", "，且 "),
    "unset": ("unset", "未设置"),
    "increase": ("increase {knob}", "调大 {knob}"),
    "decrease": ("decrease {knob}", "调小 {knob}"),
    "enable": ("enable {knob}", "启用 {knob}"),
    "disable": ("disable {knob}", "停用 {knob}"),
    "set": ("set {knob}", "设置 {knob}"),
    # why a step is left out
    "not_carried": ("infradoc does not carry out {name}.", "infradoc 不执行 {name}。"),
    "not_live": ("Not a live change: {who}.", "不能在线更改：{who}。"),
    "who_restart": ("restart the engine with the flag", "请带上该参数重启引擎"),
    "who_clients": ("whoever sends the requests has to change them", "需由发送请求的一方修改"),
    "who_operator": ("the operator has to do it", "需由运维人员操作"),
    "no_knob": ("The engine has no knob {knob}.", "引擎没有 {knob} 这一设置。"),
    "only_at_restart": ("The engine takes {knob} only at a restart: {flag}.", "引擎只在重启时接受 {knob}：{flag}。"),
    "only_at_drain": ("The engine takes {knob} only at a drain: {flag}.", "引擎只在排空后接受 {knob}：{flag}。"),
    "no_apply": (
        "infradoc.toml does not permit changes to this target (permissions.apply).",
        "infradoc.toml 不允许更改此目标（permissions.apply）。",
    ),
    "no_permission": (
        "infradoc.toml permits {knobs}, not {knob} (permissions.knobs).",
        "infradoc.toml 只允许更改 {knobs}，不包括 {knob}（permissions.knobs）。",
    ),
    "works_against": (
        "{finding} wants to {means}, which works against it, and ranks before.",
        "{finding} 要{means}，与此相抵，且排在前面。",
    ),
    "other_way": (
        "{finding} wants {knob} the other way, and ranks before.",
        "{finding} 要把 {knob} 往相反方向调，且排在前面。",
    ),
    "no_value": ("The advice for {knob} names no value.", "对 {knob} 的建议没有给出数值。"),
    "already": ("{knob} is {value} already.", "{knob} 已经是 {value}。"),
    "above_already": (
        "{knob} is {now} already, above the advised {value}.",
        "{knob} 已经是 {now}，高于建议的 {value}。",
    ),
    "below_already": (
        "{knob} is {now} already, below the advised {value}.",
        "{knob} 已经是 {now}，低于建议的 {value}。",
    ),
    "not_a_choice": (
        "{knob} cannot be {value}: the engine takes {choices}.",
        "{knob} 不能是 {value}：引擎接受 {choices}。",
    ),
    "out_of_bounds": (
        "{knob} cannot be {value}: the engine takes {low} to {high}.",
        "{knob} 不能是 {value}：引擎接受 {low} 到 {high}。",
    ),
    "cooldown": (
        "In cooldown: changed {since} s ago ({move}), next change in {left} s.",
        "冷却中：{since} 秒前刚改过（{move}），{left} 秒后才能再改。",
    ),
    "tried": (
        "This was tried {since} s ago ({move}) and taken back; it may be tried again in {left} s.",
        "{since} 秒前试过（{move}），已撤销；{left} 秒后可以再试。",
    ),
    "reverses": (
        "This would reverse the change made {since} s ago ({move}); that may be done in {left} s.",
        "这会抵消 {since} 秒前所做的更改（{move}）；{left} 秒后才可以这样做。",
    ),
    # the course of a fix
    "idle": (
        "no request came of late, so there is nothing to compare; run load beside this for a comparison",
        "最近没有请求，无从比较；要比较，请同时施加负载",
    ),
    "baseline": ("baseline: measuring {seconds} s", "基线：测量 {seconds} 秒"),
    "interrupted": (
        "interrupted while the change was under way: it may still come into force; run `infradoc undo`",
        "更改进行中被打断：它仍可能生效；请运行 `infradoc undo`",
    ),
    "settled": (
        "settled after {seconds} s: all requests begun before are gone",
        "{seconds} 秒后稳定：更改前开始的请求均已结束",
    ),
    "not_settled": ("settled after {seconds} s: time is up", "等待了 {seconds} 秒：时间已到，仍有旧请求"),
    "wait_quiet": (
        "waiting for the rule to be quiet, at most {seconds} s",
        "等待规则不再触发，最多 {seconds} 秒",
    ),
    "hold": ("hold: measuring {seconds} s", "观察：测量 {seconds} 秒"),
    "stage_baseline": ("measuring before the change", "更改前测量"),
    "stage_change": ("making the change", "正在更改"),
    "stage_settle": ("waiting for older requests to end", "等待更改前的请求结束"),
    "stage_quiet": ("waiting for the rule to be quiet", "等待规则不再触发"),
    "stage_hold": ("hold: measuring after the change", "观察：更改后测量"),
    "stage_tail": ("waiting for the last requests of the hold", "等待观察期内最后的请求结束"),
    "stage_back": ("taking the change back", "正在撤销更改"),
    "control": ("control: nothing is changed", "对照：不做任何更改"),
    "done": ("done: {knob} ({note})", "已执行：{knob}（{note}）"),
    "applied": ("applied: {moves}", "已更改：{moves}"),
    "took": ("{what} ({seconds} s)", "{what}（{seconds} 秒）"),
    "no_change": ("No change was made.", "没有做任何更改。"),
    "done_once": ("{knob} was done once.", "{knob} 已执行一次。"),
    "stays": ("{moves}.", "{moves}。"),
    "stays_as_asked": ("{moves} as asked (--keep).", "{moves}（按 --keep 的要求）。"),
    "stays_at": ("{knob} stays at {value}", "{knob} 保持 {value}"),
    "back_failed": (
        "It could not be taken back: {error} Try `infradoc undo`.",
        "未能撤销：{error} 请运行 `infradoc undo`。",
    ),
    # taking back
    "once_only": (
        "{knob} was done once: there is nothing to take back.",
        "{knob} 只执行一次：没有可撤销的内容。",
    ),
    "is": ("{knob} is {value}", "{knob} 为 {value}"),
    "back_already": (
        "{values} already: the change was not in force any more.",
        "{values}：该更改已不再生效。",
    ),
    "back_again": ("{values} again.", "已恢复：{values}。"),
    "changed_since": (
        "{knob} is {now}, neither {old} (before) nor {new} (after): somebody changed it since.",
        "{knob} 为 {now}，既不是 {old}（更改前）也不是 {new}（更改后）：此后有人改过。",
    ),
    "set_by_hand": ("Set it by hand if it is wrong.", "如不正确，请手动设置。"),
    "no_fit": ("The plan does not fit the engine any more: {why}", "方案已不适用于当前引擎：{why}"),
    "new_plan": ("Make a new plan.", "请重新生成方案。"),
    "unsettled": (
        "The change is in the journal: run `infradoc undo` when the engine answers, it settles what became of it.",
        "更改已记入日志：引擎恢复应答后运行 `infradoc undo`，即可确定其结果。",
    ),
    "not_running": (
        "{name} cannot be applied to a running engine.",
        "{name} 不能在引擎运行时更改。",
    ),
    # windows
    "no_load": ("nothing to compare: no load before or after", "无从比较：更改前后都没有负载"),
    "at_client": ("measured at the client:", "在客户端测得："),
    "by_server": ("measured by the server (no client measurements):", "由服务端测得（没有客户端测量）："),
    "before": ("before ({seconds} s)", "更改前（{seconds} 秒）"),
    "after": ("after ({seconds} s)", "更改后（{seconds} 秒）"),
    "tokens/s": ("tokens/s", "token/秒"),
    "documents/s": ("documents/s", "文档/秒"),
    "failed_requests": ("failed requests", "失败的请求"),
    "cut_prompts": ("cut prompts", "被截断的提示"),
    "of": ("{count} of {total}", "{total} 中的 {count}"),
    "seconds_cell": ("{value} s (n {n})", "{value} 秒 (n {n})"),
    "end-to-end": ("end-to-end", "端到端"),
    # checks and verdicts
    "checks": ("checks:", "检查："),
    "met": ("met", "满足"),
    "not_met": ("NOT met", "不满足"),
    "cannot_tell": ("cannot tell", "无法判断"),
    "bound": (", bound {limit} x before", "，限度为更改前的 {limit} 倍"),
    "numbers": (": {before} -> {after}{bound}", "：{before} -> {after}{bound}"),
    "is_quiet": ("{rule} is quiet", "{rule} 不再触发"),
    "error_share": ("share of errors", "错误比例"),
    "at_most": ("{what} at most {limit}", "{what}不超过 {limit}"),
    "cut_share": ("share of answers to cut prompts", "提示被截断的回答比例"),
    "llm_kv_leaked_block_age_seconds": ("age of the oldest leaked block (s)", "最早泄漏块的时长（秒）"),
    "llm_generation_tokens_total": ("tokens a second", "每秒 token 数"),
    "llm_oom_total": ("out-of-memory steps a second", "每秒内存不足的步数"),
    "llm_requests_truncated_total": ("cut prompts a second", "每秒被截断的提示数"),
    "torch_alloc_retries_total": ("retries of the allocator a second", "分配器每秒重试次数"),
    "verdict": ("verdict: {verdict}", "结论：{word}（{verdict}）"),
    "fixed": ("fixed", "已修复"),
    "not_fixed": ("not_fixed", "未修复"),
    "worse": ("worse", "变差"),
    "inconclusive": ("inconclusive", "无法定论"),
    "failed_checks": ("Not met: {checks}.", "不满足：{checks}。"),
    "between": ("; ", "；"),
    "then": (", ", "，"),
    "no_judgement": ("{rule} could not be judged without load.", "没有负载，无法判断 {rule}。"),
    "fixed_alone": (
        "Done, and the rule is quiet. Nothing to compare: no load.",
        "已执行，规则不再触发。没有负载，无从比较。",
    ),
    "after_change": ("After the change: {losses}.", "更改之后：{losses}。"),
    "too_few": ("Too few samples to judge: {checks}.", "样本太少，无法判断：{checks}。"),
    "all_met": (
        "The rule is quiet, what it names is better, throughput and errors are within their bounds.",
        "规则不再触发，所列指标变好，吞吐和错误均在限度以内。",
    ),
    "server_only": (
        " Measured by the server itself: what waits in front of it is not seen.",
        "由服务端自己测得：看不到在它前面排队的请求。",
    ),
    "fell": ("{what} fell from {before} to {after}", "{what}从 {before} 降到 {after}"),
    "rose": ("{what} rose from {before} to {after}", "{what}从 {before} 升到 {after}"),
    "errors": ("errors", "错误比例"),
    "no_load_once": (
        "There was no load to measure in one of the two windows.",
        "两个测量窗口之一没有负载可测。",
    ),
    "class_missing": (
        "The load changed: class {name} was not sent in both windows.",
        "负载变了：类别 {name} 没有在两个窗口中都发送。",
    ),
    "load_changed": ("The load changed: {what} of class {name}.", "负载变了：类别 {name} 的{what}。"),
    "in_flight": (
        "{before} requests in flight before and {after} after",
        "在途请求更改前为 {before}，更改后为 {after}",
    ),
    "prompt_length": (
        "mean prompt length {before} before and {after} after",
        "平均提示长度更改前为 {before}，更改后为 {after}",
    ),
    "mean_max_tokens": (
        "mean max_tokens {before} before and {after} after",
        "平均 max_tokens 更改前为 {before}，更改后为 {after}",
    ),
    "other_programs": ("other programs", "其他程序"),
    "of_cores": ("{count} of {total} cores", "{total} 核中的 {count}"),
    "others_took": (
        "Other programs took {before} of {cores} cores before and {after} after, so speeds cannot be compared.",
        "本机其他程序在更改前占用 {cores} 个核中的 {before} 个，更改后占用 {after} 个，因此速度无法比较。",
    ),
    "run_again": (" Run it again when the machine is quiet.", "请在机器空闲时重新运行。"),
    # what the engine gave back
    "given_back": ("given back: {n} leaked blocks, the oldest first", "收回泄漏的块：{n} 个，最早的在前"),
    "block": (
        "  block {block}, last of request {owner}, lost for {age} s",
        "  块 {block}，最后属于请求 {owner}，已泄漏 {age} 秒",
    ),
    "more": ("  and {n} more", "  另有 {n} 个"),
    # the commands
    "watching": ("watching {url} for at most {seconds} s", "观察 {url}，最多 {seconds} 秒"),
    "next_apply": (
        "next: infradoc fix {target} --apply   makes the first change and judges it",
        "下一步：infradoc fix {target} --apply   执行第一项更改并评判",
    ),
    "next_by_hand": (
        "next: make the change by hand, then: infradoc diagnose {target}",
        "下一步：手动更改，然后运行：infradoc diagnose {target}",
    ),
    "next_undo": ("to take it back: infradoc undo {target}", "要撤销：infradoc undo {target}"),
    "no_live_step": ("No change can be applied live.", "没有可以在线执行的更改。"),
    "plan_says": ("The plan says why each was left out.", "方案中说明了每一项未采用的原因。"),
    "takes_none": (
        "{system} takes no change while it runs. {what}.",
        "{system} 运行时不接受更改。{what}。",
    ),
    "this_server": ("This server", "此服务"),
    "restart_with": ("Restart it with {flag}", "请以 {flag} 重启"),
    "follow_plan": ("Follow the plan by hand", "请按方案手动操作"),
    "ask_change": ("Make this change now: {change}? [y/N] ", "现在执行此更改：{change}？[y/N] "),
    "nothing_changed": ("Nothing was changed.", "没有更改任何内容。"),
    "not_judged": ("The target cannot be judged: {error}", "无法判断此目标：{error}"),
    "nothing_found": ("Nothing was found in {seconds} s.", "{seconds} 秒内没有发现问题。"),
    "not_there": ("{id} is not there now.", "目前没有 {id}。"),
    "blind": (
        "{id} cannot be judged on this target: signals that it needs are missing.",
        "在此目标上无法判断 {id}：缺少所需的信号。",
    ),
    "need_server": (
        "{target} is a file or folder: {command} needs a live server.",
        "{target} 是文件或文件夹：{command} 需要运行中的服务。",
    ),
    "give_url_fix": (
        "Give the server's URL; `infradoc diagnose {target}` reads what was kept.",
        "请给出服务的 URL；`infradoc diagnose {target}` 可读取已保存的内容。",
    ),
    "give_url_undo": ("Give its URL or its name.", "请给出其 URL 或名称。"),
    "no_terminal": (
        "--apply needs a person to confirm, and there is no terminal.",
        "--apply 需要有人确认，而这里没有终端。",
    ),
    "add_yes": ("Add --yes.", "请加上 --yes。"),
    "client_folder": ("--client {path} is a folder.", "--client {path} 是文件夹。"),
    "give_client_out": (
        "Give the file that bench --client-out writes.",
        "请给出 bench --client-out 写出的文件。",
    ),
    "journal_empty": ("The journal {path} holds no change.", "日志 {path} 中没有更改。"),
    "passed_over": ("passed over {change}: {error}", "跳过 {change}：{error}"),
    "none_answers": ("No engine with a change in force answers. {error}", "有生效更改的引擎均无应答。{error}"),
    "nothing_to_undo": ("There is no change to take back in {path}.", "{path} 中没有可撤销的更改。"),
    "see_list": ("See `infradoc undo --list`.", "参见 `infradoc undo --list`。"),
    "last_is": ("The last change is {change} on {target}.", "最后一次更改是 {target} 上的 {change}。"),
    "yes_or_name": (
        "Add --yes, or name it: `infradoc undo --change {id}`.",
        "请加上 --yes，或指明它：`infradoc undo --change {id}`。",
    ),
    "ask_undo": ("Take back {change} on {target}? [y/N] ", "撤销 {target} 上的 {change}？[y/N] "),
    "nothing_undone": ("Nothing was taken back.", "没有撤销任何更改。"),
    "not_in_force": ("Change {id} is not in force ({state}).", "更改 {id} 未生效（{state}）。"),
    "no_such_change": ("There is no change {id} in {path}.", "{path} 中没有更改 {id}。"),
    "none_of_target": (
        "{target} has no change to take back, says {path}.",
        "{path} 中没有 {target} 可撤销的更改。",
    ),
    "never_changed": (
        "infradoc has changed nothing on {target}, says {path}.",
        "据 {path}，infradoc 没有更改过 {target}。",
    ),
    "state_order": ("done, nothing to take back", "已执行，无需撤销"),
    "state_intent": ("may be in force", "可能已生效"),
    "state_applied": ("in force", "已生效"),
    "state_undo_intent": ("being taken back", "正在撤销"),
    "state_failed": ("failed", "失败"),
    "state_verdict": ("judged", "已评判"),
    "state_undone": ("undone", "已撤销"),
    "noted": ("{state} ({note})", "{state}（{note}）"),
    # notes of the journal, as it has them
    "never came into force": ("never came into force", "从未生效"),
    "nothing to take back": ("nothing to take back", "无需撤销"),
    "was not in force": ("was not in force", "当时未生效"),
}
LATENCIES: Mapping[str, str] = {  # signal -> what people call it; P50 and the like follow
    "client_time_to_first_token_seconds": "TTFT",
    "client_inter_token_latency_seconds": "ITL",
    "client_request_seconds": "end-to-end",
}
_AT_MOST = re.compile(r"(share of errors|share of answers to cut prompts)(?: at most (\S+))?")
_SHARES = {"share of errors": "error_share", "share of answers to cut prompts": "cut_share"}
_NOTES = ("never came into force", "nothing to take back", "was not in force")
_SAID = ("tokens/s", "documents/s", "end-to-end")
_QUIET = re.compile(r"(\S+) is quiet")


def say(lang: str, key: str, /, **values: object) -> str:
    """One text of `TEXTS` with its values; English for any language other than Chinese."""
    return TEXTS[key][lang == "zh"].format(**values)


def agreeing_in(lang: str, text: str) -> str:
    """The text as its number wants it, in English; Chinese has one form."""
    return text if lang == "zh" else agreeing(text)


def check_text(lang: str, name: str) -> str:
    """The name of a check as people say it. Names in the data are the same in every language."""
    if found := _QUIET.fullmatch(name):
        return say(lang, "is_quiet", rule=found[1])
    if found := _AT_MOST.fullmatch(name):
        what = say(lang, _SHARES[found[1]])
        return say(lang, "at_most", what=what, limit=found[2]) if found[2] else what
    return " ".join(_word(lang, part) for part in name.split(" "))


def _word(lang: str, part: str) -> str:
    """A word of a check's name: a signal or a unit in words, a class or a quantile as it is."""
    part = LATENCIES.get(part, part)
    signal = part.startswith(("llm_", "torch_")) and part in TEXTS
    return say(lang, part) if signal or part in _SAID else part


def noted(lang: str, note: str) -> str:
    """A note of the journal in words: those that infradoc itself writes have a translation."""
    return say(lang, note) if note in _NOTES else note
