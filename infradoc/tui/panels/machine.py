"""GPUs, host and the server's processes, a row each."""

from __future__ import annotations

from textual.strip import Strip

from infradoc.fleet.machine import GpuRow, HostRow, gpu_rows, host_row
from infradoc.tui import paint
from infradoc.tui.panels.context import Context

_BAR = 12


def paint_machine(context: Context) -> list[Strip]:
    """The strip of the machine."""
    rows = [strip for gpu in gpu_rows(context.frame) for strip in gpu_strips(gpu, context)]
    host = host_row(context.frame)
    if host.known:
        rows += host_strips(host, context)
    if rows:
        return rows
    dim = context.palette.get("dim")
    return [paint.strip([(row, dim)]) for row in paint.wrapped(context.say["no_machine"], context.width)]


def gpu_strips(gpu: GpuRow, context: Context) -> list[Strip]:
    """A device: its load and its memory."""
    say, palette = context.say, context.palette
    more = [
        f"{gpu.power:.0f} W" if gpu.power is not None else "",
        "" if gpu.temperature is None else f"{gpu.temperature:.0f} °C",
    ]
    share = gpu.memory_used / gpu.memory_size if gpu.memory_used is not None and gpu.memory_size else None
    head = [
        (f"{say['gpu']} {paint.one_line(gpu.name)}  ", palette.get("strong")),
        ("  ".join(one for one in more if one), palette.get("dim")),
    ]
    return [
        paint.strip(head, context.width),
        labelled(say["busy"], gpu.utilization, paint.percent(gpu.utilization), context),
        labelled(say["memory"], share, f"{paint.size(gpu.memory_used)} / {paint.size(gpu.memory_size)}", context),
    ]


def host_strips(host: HostRow, context: Context) -> list[Strip]:
    """The host's cores and memory, and what the server takes of them."""
    say = context.say
    cores = host.busy_cores / host.cpus if host.busy_cores is not None and host.cpus else None
    cpu = f"{paint.number(host.busy_cores)} / {paint.number(host.cpus)} {say['cores']}"
    cpu += f", {say['load']} {paint.number(host.load)}"
    size, left = host.memory_size, host.memory_available
    used = 1 - left / size if left is not None and size else None
    rows = [
        labelled(f"{say['host']} CPU", cores, cpu, context),
        labelled(f"{say['host']} RAM", used, f"{paint.size(left)} {say['free']} / {paint.size(size)}", context),
    ]
    if host.server_memory is not None:
        share = host.server_memory / size if size else None
        text = f"{paint.size(host.server_memory)}, {paint.number(host.server_cores)} {say['cores']}"
        rows.append(labelled(say["server"], share, text, context))
    return rows


def labelled(name: str, share: float | None, text: str, context: Context) -> Strip:
    """A name, a bar and a text."""
    role = "critical" if (share or 0) > 0.95 else "warning" if (share or 0) > 0.85 else "first"
    parts = [
        (paint.fitted(name, 10) + " ", context.palette.get("text")),
        (paint.bar(share, _BAR) + " ", context.palette.get(role)),
        (text, context.palette.get("text")),
    ]
    return paint.strip(parts, context.width)
