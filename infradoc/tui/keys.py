"""All keys with what they do, for the help."""

from __future__ import annotations

_KEYS: tuple[tuple[str, str, str], ...] = (
    ("↑ ↓  Enter", "choose, open", "选择，打开"),
    ("Esc", "back; drop the filter", "返回；清除过滤"),
    ("/", "filter the targets", "过滤目标"),
    ("1 ... 8", "panel: show and go to it; again: hide it", "面板：显示并转到；再按则隐藏"),
    ("m", "maximise the panel, and back", "最大化面板，再按还原"),
    ("Tab  Shift+Tab", "next panel, previous panel", "下一个、上一个面板"),
    ("o", "KV blocks by state, by owner, by age", "KV 块：按状态、按持有者、按时长"),
    ("f", "go to the findings", "转到发现列表"),
    ("a", "apply the first change of the plan (asks for a word)", "执行方案的第一项（需输入确认词）"),
    ("u", "take the last change back (asks for a word)", "撤回最近一次改动（需输入确认词）"),
    ("r", "plan anew", "重新规划"),
    ("b", "runbook beside the finding, or not", "显示或隐藏手册"),
    ("p", "pause and go on", "暂停与继续"),
    ("← →", "recording: a second back, forward; with Shift ten", "录制：后退、前进一秒；按住 Shift 为十秒"),
    ("Home  End", "recording: its start, its end", "录制：开头、结尾"),
    ("Space  x", "recording: play, speed 1x or 10x", "录制：播放，速度 1x 或 10x"),
    ("e", "export what is shown as SVG and CSV", "将所示内容导出为 SVG 和 CSV"),
    ("t", "dark or light", "深色或浅色"),
    ("Ctrl+P", "all commands, all themes", "全部命令与主题"),
    ("?", "this help", "本帮助"),
    ("q  Ctrl+Q", "quit", "退出"),
)


def help_keys(lang: str) -> list[tuple[str, str]]:
    """(keys, what they do)."""
    return [(keys, zh if lang == "zh" else en) for keys, en, zh in _KEYS]
