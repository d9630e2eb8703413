"""All keys with what they do, for the help."""

from __future__ import annotations

_KEYS: tuple[tuple[str, str, str], ...] = (
    ("↑ ↓  j k  Enter", "choose or scroll, open", "选择或滚动，打开"),
    ("g  G", "to the top, to the bottom", "到顶部、到底部"),
    ("Esc", "back; drop the filter", "返回；清除过滤"),
    ("/", "filter the targets", "过滤目标"),
    ("1 ... 8", "panel: show and go to it; again: hide it", "面板：显示并转到；再按则隐藏"),
    ("m", "maximise the panel, and back", "最大化面板，再按还原"),
    ("Tab  Shift+Tab", "next panel, previous panel", "下一个、上一个面板"),
    ("o", "KV blocks by state, by owner, by age", "KV 块：按状态、按持有者、按时长"),
    ("f", "go to the findings", "转到发现列表"),
    ("l", "what happened: the letters of the time axis in words", "发生了什么：时间轴上各字母的含义"),
    ("c", "what was checked, and what this server does not show", "检查了什么，哪些服务没有提供"),
    ("v", "all evidence, or the strongest", "全部证据，或只看最强的"),
    ("a", "apply the first change of the plan (asks for a word)", "执行方案的第一项（需输入确认词）"),
    ("u", "take the last change back (asks for a word)", "撤回最近一次改动（需输入确认词）"),
    ("r", "plan anew (also happens by itself when something changed)", "重新规划（情况变化时会自动进行）"),
    ("b", "runbook beside the finding, or not", "显示或隐藏手册"),
    ("p", "pause and go on", "暂停与继续"),
    ("← →", "recording: a second back, forward; with Shift ten", "录制：后退、前进一秒；按住 Shift 为十秒"),
    ("Home  End", "recording: its start, its end", "录制：开头、结尾"),
    ("Space  x", "recording: play, speed 1x or 10x", "录制：播放，速度 1x 或 10x"),
    ("e", "export what is shown as SVG and CSV", "将所示内容导出为 SVG 和 CSV"),
    ("t", "dark or light", "深色或浅色"),
    (":  Ctrl+P", "all commands, all themes", "全部命令与主题"),
    ("?", "this help", "本帮助"),
    ("q  Ctrl+Q", "quit; Ctrl+C twice does it too", "退出；按两次 Ctrl+C 也可以"),
)


def help_keys(lang: str) -> list[tuple[str, str]]:
    """(keys, what they do)."""
    return [(keys, zh if lang == "zh" else en) for keys, en, zh in _KEYS]
