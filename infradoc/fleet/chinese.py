"""What sources and the engine's API say when something is wrong, in Chinese: their own sentences are English.

A text is a sentence and perhaps a hint; each is looked up in `TROUBLES`, and its parts in braces are kept, or looked up
in `REASONS`. What is not known stays as it is: a fault that is told in English is better than one that is not told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

# English template -> Chinese template with the same names in braces.
TROUBLES: Mapping[str, str] = {
    # the network
    "{url} did not answer within {s} s.": "{url} 在 {s} 秒内没有应答。",
    "The server is overloaded or its event loop is blocked.": "服务过载，或者事件循环被阻塞。",
    "{url} did not finish within {s} s.": "{url} 在 {s} 秒内没有传完。",
    "The server is overloaded.": "服务过载。",
    "{place} did not accept within {s} s.": "{place} 在 {s} 秒内没有接受连接。",
    "Is a firewall between?": "中间是否有防火墙？",
    "{place} refuses the connection.": "{place} 拒绝连接。",
    "Is the server running on that port?": "服务是否在该端口运行？",
    "{place} cannot be reached: {why}.": "无法连接 {place}：{why}。",
    "Check address and network.": "请检查地址和网络。",
    "{url} broke off in the middle of its answer: {why}.": "{url} 的应答中途断开：{why}。",
    "Did the server die, or does this port speak https or something else than HTTP?": (
        "服务是否已退出，或者该端口使用 https 或其他协议？"
    ),
    "The host name in {url} is not known: {why}.": "{url} 中的主机名无法解析：{why}。",
    "Check the spelling.": "请检查拼写。",
    "The proxy to {place} failed: {why}.": "通往 {place} 的代理失败：{why}。",
    "Check proxy and HTTPS_PROXY.": "请检查 proxy 和 HTTPS_PROXY。",
    "{url} cannot be reached as the proxy settings say ({where}): {why}.": (
        "无法按代理设置（{where}）连接 {url}：{why}。"
    ),
    "Give an http:// or https:// proxy, or unset the variable for this command.": (
        "请使用 http:// 或 https:// 代理，或者为此命令取消该变量。"
    ),
    "{url} is not a usable address: {why}.": "{url} 不是可用的地址：{why}。",
    "{url} is no http:// or https:// address.": "{url} 不是 http:// 或 https:// 地址。",
    "Check the URL.": "请检查 URL。",
    "Give the server's URL.": "请给出服务的 URL。",
    "{place} speaks plain http, not https.": "{place} 使用 http，而不是 https。",
    "{place} speaks https, not plain http.": "{place} 使用 https，而不是 http。",
    "Use {url}.": "请使用 {url}。",
    # certificates
    "The certificate of {place} is refused: {why}.": "{place} 的证书不被接受：{why}。",
    "Set ca_file for this target.": "请为此目标设置 ca_file。",
    "TLS with {place} failed: {why}.": "与 {place} 的 TLS 连接失败：{why}。",
    "Does it ask for a client certificate (client_cert_file)?": "它是否要求客户端证书（client_cert_file）？",
    "The CA file {file} cannot be used: {why}.": "CA 文件 {file} 不能使用：{why}。",
    "It must hold PEM.": "它必须是 PEM 格式。",
    "The client certificate {file} cannot be used: {why}.": "客户端证书 {file} 不能使用：{why}。",
    "Check client_cert_file and client_key_file.": "请检查 client_cert_file 和 client_key_file。",
    # the metrics page
    "{url} sends more than {n} MiB.": "{url} 发送的内容超过 {n} MiB。",
    "This is not a metrics page.": "这不是指标页。",
    "{url} answers 404: no metrics page there.": "{url} 返回 404：那里没有指标页。",
    "{url} answers 501: metrics are switched off.": "{url} 返回 501：指标已关闭。",
    "llama.cpp: start it with --metrics.": "llama.cpp：启动时请加 --metrics。",
    "{url} answers {status}: it wants credentials.": "{url} 返回 {status}：它要求凭证。",
    "Name its key in infradoc.toml: [targets.NAME.auth] api_key_env, bearer_env or basic_user.": (
        "请在 infradoc.toml 中指明密钥：[targets.NAME.auth] 的 api_key_env、bearer_env 或 basic_user。"
    ),
    "{url} answers {status}: it has moved.": "{url} 返回 {status}：它已迁移。",
    "Give the final address.": "请给出最终地址。",
    "{url} answers with an empty page.": "{url} 返回空页。",
    "Is this the server's metrics page?": "这是服务的指标页吗？",
    "{url} answers with JSON, not Prometheus metrics.": "{url} 返回 JSON，而不是 Prometheus 指标。",
    "Is this the right path?": "路径是否正确？",
    "{url} answers {status}.": "{url} 返回 {status}。",
    "See the server's log.": "请查看服务的日志。",
    "Give the address of the LLM server itself, not of a dashboard or a proxy page.": (
        "请给出 LLM 服务本身的地址，而不是仪表盘或代理页面的地址。"
    ),
    "{url} is a web page (HTML), not metrics.": "{url} 是网页（HTML），不是指标。",
    "{url} is no Prometheus metrics page.": "{url} 不是 Prometheus 指标页。",
    "Check the address.": "请检查地址。",
    "{url} broke off in the middle of a line.": "{url} 在一行中间断开。",
    "Did the server die meanwhile?": "服务是否已经退出？",
    "{url} is a metrics page of another system ({names} ...), not of an LLM server that infradoc knows.": (
        "{url} 是其他系统的指标页（{names} ...），不是 infradoc 认识的 LLM 服务。"
    ),
    "Known: {names}. Is the port right?": "认识的有：{names}。端口是否正确？",
    "{url} holds no metrics.": "{url} 没有指标。",
    "Is this the LLM server's own metrics page?": "这是 LLM 服务自己的指标页吗？",
    "{url} shows no metric that infradoc knows.": "{url} 没有 infradoc 认识的指标。",
    "Did the engine switch metrics off?": "引擎是否关闭了指标？",
    # secrets
    "The variable {env}, which holds the {what}, is not set.": "保存{what}的变量 {env} 没有设置。",
    "Export it first.": "请先导出它。",
    "The {what} file {file} is empty.": "{what}文件 {file} 是空的。",
    "Write the secret into it.": "请把密钥写入其中。",
    "The {what} file {file} cannot be read: {why}.": "{what}文件 {file} 无法读取：{why}。",
    "Check its path.": "请检查其路径。",
    "The {what} in the {where} holds a line break or a character that no HTTP header takes.": (
        "{where} 中的{what}含有换行，或 HTTP 头不接受的字符。"
    ),
    "Keep the bare secret there, on one line.": "请只在其中保留密钥本身，写成一行。",
    # the engine's admin API
    "No admin token for {url} was found.": "没有找到 {url} 的管理令牌。",
    "Set INFRADOC_ADMIN_TOKEN.": "请设置 INFRADOC_ADMIN_TOKEN。",
    "Set INFRADOC_ADMIN_TOKEN, or admin_token_env in infradoc.toml.": (
        "请设置 INFRADOC_ADMIN_TOKEN，或 infradoc.toml 中的 admin_token_env。"
    ),
    "Set INFRADOC_ADMIN_TOKEN, or admin_token_file in infradoc.toml.": (
        "请设置 INFRADOC_ADMIN_TOKEN，或 infradoc.toml 中的 admin_token_file。"
    ),
    "{env} is sent only to this machine and to targets of infradoc.toml: name {url} there.": (
        "{env} 只发送给本机和 infradoc.toml 中的目标：请在其中写明 {url}。"
    ),
    "{url} refuses the admin token.": "{url} 不接受管理令牌。",
    "Is it the token of this server?": "这是该服务的令牌吗？",
    "Is it the bundled engine?": "它是自带的引擎吗？",
    "Is this a bundled engine?": "它是自带的引擎吗？",
    "{url} is no JSON.": "{url} 不是 JSON。",
    "{url} answered {status}: the admin token is missing or wrong.": "{url} 返回 {status}：缺少管理令牌或令牌有误。",
    "{url} answered {status}: {why}": "{url} 返回 {status}：{why}",
    "{url}: the configuration was changed by somebody else meanwhile.": "{url}：配置已被他人更改。",
    "Run the command again.": "请再试一次。",
    "{url}: another writer holds the lease. {said}": "{url}：另一个写入者持有租约。{said}",
    "{url}: another writer holds the lease.": "{url}：另一个写入者持有租约。",
    "Wait until it is over.": "请等它结束。",
    "{url} does not exist.": "{url} 不存在。",
    "Only the bundled engine can be changed while it runs.": "只有自带的引擎可以在运行时更改。",
    "{url} does not have the expected form.": "{url} 的格式不符合预期。",
    "{url} gave no answer in {s} s.": "{url} 在 {s} 秒内没有应答。",
    "Is the engine stuck?": "引擎是否卡住了？",
    "No connection to {url}: {why}.": "无法连接 {url}：{why}。",
    "Is the engine running there?": "引擎是否在那里运行？",
    "{url} did not answer with JSON.": "{url} 的应答不是 JSON。",
    "The engine has no knob {knob}.": "引擎没有 {knob} 这一设置。",
    "Is it an older version?": "是否为较早的版本？",
    # files and the host
    "The source {name} shows nothing: {why}.": "数据源 {name} 没有数据：{why}。",
    "there is no file {file}": "没有文件 {file}",
    "there is no program {name} for log_command": "没有 log_command 的程序 {name}",
    "The host cannot be read: {why}.": "无法读取主机信息：{why}。",
    "NVML cannot be used: {why}.": "无法使用 NVML：{why}。",
    "The log file {file} cannot be read: {why}.": "日志文件 {file} 无法读取：{why}。",
    "The log command {name} does not run: {why}.": "日志命令 {name} 无法运行：{why}。",
    "it ended with exit code {code}": "它已结束，退出码 {code}",
    "it ended at once with exit code {code}": "它立即结束，退出码 {code}",
    "Its last line: {line}": "最后一行：{line}",
    "The client file {file} cannot be read: {why}.": "客户端文件 {file} 无法读取：{why}。",
    "No AMD GPU answered; see `amd-smi static` and the kernel log.": (
        "没有 AMD GPU 应答；请查看 `amd-smi static` 和内核日志。"
    ),
    "{url} gave no page: {why}.": "{url} 没有返回页面：{why}。",
    "The journal {file} cannot be written: {why}; nothing was changed.": (
        "改动日志 {file} 无法写入：{why}；没有更改任何内容。"
    ),
    "Free the disk or set INFRADOC_STATE_DIR.": "请清出磁盘空间，或设置 INFRADOC_STATE_DIR。",
    "The journal {file} cannot be written: {why}.": "改动日志 {file} 无法写入：{why}。",
    "The journal {file} cannot be read: {why}.": "改动日志 {file} 无法读取：{why}。",
    # recordings
    "{file} is no recording.": "{file} 不是录制。",
    "Give a folder or a .tar.gz that `infradoc record` wrote.": ("请给出 `infradoc record` 写出的文件夹或 .tar.gz。"),
    "There is no {file}.": "没有 {file}。",
    "Check the path.": "请检查路径。",
    "{file} holds none of the files of a recording ({names}).": "{file} 里没有录制的任何文件（{names}）。",
    "Is it the right folder?": "文件夹是否正确？",
    "{file} cannot be read: {why}.": "{file} 无法读取：{why}。",
    "{file} cannot be read further: {why}": "{file} 无法继续读取：{why}",
    "{file} is no readable archive: {why}.": "{file} 不是可读的归档：{why}。",
    "Was it copied whole?": "是否完整复制？",
    "{name} in {file} is damaged: {why}.": "{file} 中的 {name} 已损坏：{why}。",
    "{file} has more than {n} entries.": "{file} 有超过 {n} 个条目。",
    "It is no recording.": "它不是录制。",
    "{file} unpacks to more than {n} MiB.": "{file} 解压后超过 {n} MiB。",
    "{name} in {file} is larger than {n} MiB.": "{file} 中的 {name} 大于 {n} MiB。",
    "Split it.": "请拆分它。",
    # repairs
    "{spec} has no server URL, only files.": "{spec} 没有服务的 URL，只有文件。",
    "A fix needs a running server.": "修复需要正在运行的服务。",
    "`infradoc rules list` shows all.": "`infradoc rules list` 列出全部。",
    "Stopped before the verdict.": "在得出结论前停止。",
    "The plan is another by now: nothing was changed.": "方案已经变化：没有更改任何内容。",
    "Look at the new plan first.": "请先查看新的方案。",
    "There is no change to take back on {url}.": "{url} 上没有可以撤回的改动。",
    "The look failed: {why}": "这次采样失败：{why}",
    # export
    "There is nothing to export yet.": "还没有可以导出的内容。",
    "{file} cannot be written: {why}.": "{file} 无法写入：{why}。",
    "Give another --export-dir.": "请用 --export-dir 指定别处。",
}
REASONS: Mapping[str, str] = {
    "Connection refused": "连接被拒绝",
    "Connection reset by peer": "连接被对方重置",
    "Broken pipe": "连接已断开",
    "No route to host": "没有到主机的路由",
    "Network is unreachable": "网络不可达",
    "Name or service not known": "名称未知",
    "Temporary failure in name resolution": "域名解析暂时失败",
    "No address associated with hostname": "主机名没有地址",
    "No such file or directory": "文件不存在",
    "Is a directory": "是文件夹",
    "Not a directory": "不是文件夹",
    "Permission denied": "没有权限",
    "No space left on device": "磁盘已满",
    "Read-only file system": "文件系统只读",
    "Too many open files": "打开的文件过多",
    "certificate has expired": "证书已过期",
    "self-signed certificate": "自签名证书",
    "self signed certificate": "自签名证书",
    "unable to get local issuer certificate": "找不到签发者的证书",
    "it is not trusted": "不受信任",
    "it is no UTF-8 text": "不是 UTF-8 文本",
    "no reason given.": "没有给出原因。",
    "SOCKS is not supported": "不支持 SOCKS",
    "admin token": "管理令牌",
    "bearer token": "bearer 令牌",
    "API key": "API 密钥",
    "password": "密码",
    "this user may not open the NVIDIA devices (/dev/nvidia*)": "此用户无权打开 NVIDIA 设备（/dev/nvidia*）",
    "libnvidia-ml.so.1 cannot be loaded; a container needs it mounted (NVIDIA_DRIVER_CAPABILITIES=utility)": (
        "无法加载 libnvidia-ml.so.1；容器需要挂载它（NVIDIA_DRIVER_CAPABILITIES=utility）"
    ),
    "NVML and the loaded driver have different versions after an update: reload the driver or reboot": (
        "更新后 NVML 与已加载的驱动版本不同：请重新加载驱动或重启"
    ),
}


def in_language(text: str | None, lang: str) -> str:
    """An error of infradoc in the language of the screen; "" for none."""
    return "" if not text else in_chinese(text) if lang == "zh" else text


def in_chinese(text: str) -> str:
    """Sentence by sentence; what is not known is kept as it is."""
    made, rest = "", text.strip()
    while rest:
        for pattern, template in _patterns():
            if found := pattern.match(rest):
                made += template.format(**{name: _part(value) for name, value in found.groupdict().items()})
                rest = rest[found.end() :].lstrip()
                break
        else:
            return f"{made}{rest}"
    return made


def _part(text: str) -> str:
    text = re.sub(r"^(\w+Error: )?\[Errno -?\d+\] ", "", text)
    return REASONS.get(text) or REASONS.get(text.rstrip(".")) or (in_chinese(text) if " " in text else text)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Those with more fixed words first: `answers 404: ...` before `answers {status}.`."""
    ranked = sorted(TROUBLES.items(), key=lambda pair: -len(re.sub(r"{\w+}", "", pair[0])))
    return [(re.compile(_regex(english) + r"(?=\s|$)", re.DOTALL), chinese) for english, chinese in ranked]


def _regex(template: str) -> str:
    """The template with its names as groups; one at the very end takes all that is left."""
    parts = re.split(r"{(\w+)}", template)
    groups = [f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts)]
    return "".join(groups).removesuffix(".+?)") + ".+)" if template.endswith("}") else "".join(groups)
