"""The panels that are lines over time: throughput, latencies, queue, and KV use where there is no block map."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from textual.strip import Strip

from infradoc.fleet import history
from infradoc.signals.percentiles import min_samples
from infradoc.tui import paint
from infradoc.tui.downsample import Floats, minmax
from infradoc.tui.panels.context import Context
from infradoc.tui.widgets.plot import Line, Plot, paint_plot

_FILLED_PERIODS = 3.0  # a column between two samples that are so close holds the earlier one
Samples = Callable[[float, float], tuple[Floats, Floats]]


def paint_throughput(context: Context) -> list[Strip]:
    """Tokens a second, generated and prompt."""
    frame, say = context.frame, context.say
    prompt = (
        "llm_prompt_tokens_total" if frame.select("llm_prompt_tokens_total") else "llm_prompt_computed_tokens_total"
    )
    lines = [
        line(context, say["generated"], "gen", lambda a, b: history.rate(frame, "llm_generation_tokens_total", a, b)),
        line(context, say["prompt"], "prompt", lambda a, b: history.rate(frame, prompt, a, b)),
    ]
    return drawn(context, lines, paint.number)


def paint_queue(context: Context) -> list[Strip]:
    """Requests waiting and running."""
    frame, say = context.frame, context.say
    lines = [
        line(context, say["q_waiting"], "waiting", lambda a, b: history.gauge(frame, "llm_requests_waiting", a, b)),
        line(context, say["q_running"], "running", lambda a, b: history.gauge(frame, "llm_requests_running", a, b)),
    ]
    return drawn(context, lines, paint.number)


def paint_usage(context: Context) -> list[Strip]:
    """Share of the KV pool in use."""
    frame = context.frame

    def usage(begin: float, end: float) -> tuple[Floats, Floats]:
        return history.gauge(frame, "llm_kv_cache_usage_ratio", begin, end, largest=True)

    return drawn(context, [line(context, context.say["kv_usage"], "kv", usage, paint.percent)], paint.percent, top=1.0)


def paint_ttft(context: Context) -> list[Strip]:
    """Percentiles of the time to the first token."""
    return percentiles(context, ("llm_time_to_first_token_seconds", "client_time_to_first_token_seconds"))


def paint_itl(context: Context) -> list[Strip]:
    """Percentiles of the time between two tokens."""
    return percentiles(context, ("llm_inter_token_latency_seconds", "client_inter_token_latency_seconds"))


def percentiles(context: Context, names: tuple[str, str]) -> list[Strip]:
    """P50, P90 and P99 over the minute before each column, the server's own where it has them."""
    frame, axis = context.frame, context.axis
    name = next((one for one in names if frame.select(f"{one}_bucket")), "")
    rolled: dict[tuple[int, int], tuple[dict[float, Floats], Floats]] = {}

    def compute(q: float) -> Callable[[int, int], tuple[Floats, Floats]]:
        def columns(first: int, count: int) -> tuple[Floats, Floats]:
            if (first, count) not in rolled:  # one pass over the buckets serves all three lines
                moments = np.minimum((first + 1 + np.arange(count)) * axis.step, frame.now)
                rolled[first, count] = history.rolling(frame, name, moments)
            found = rolled[first, count][0][q]
            return found, found

        return columns

    lines = []
    for q in reversed(history.QUANTILES):
        low, high = context.cache.columns(f"{name} {q}", axis, frame.now, compute(q))
        newest = [values[q][-1] for values, _ in rolled.values() if len(values[q])]
        known = newest and not math.isnan(newest[-1])
        text = paint.seconds(float(newest[-1])) if known else f"- (n<{min_samples(q)})"
        lines.append(Line(f"P{q * 100:.0f}", low, high, text))
    behind = [float(number[-1]) for _, number in rolled.values() if len(number)]
    samples = round(behind[-1]) if behind else 0
    lines[-1] = replace(lines[-1], last=f"{lines[-1].last}  {context.say['samples'].format(n=samples)}")
    note = context.say["few"].format(n=samples, need=min_samples(0.5)) if name else context.say["no_data"]
    return drawn(context, lines, paint.seconds, note=note)


def line(
    context: Context, name: str, key: str, samples: Samples, shown: Callable[[float | None], str] = paint.number
) -> Line:
    """A line of samples, reduced to the columns of the panel."""
    axis, now = context.axis, context.frame.now

    def compute(first: int, count: int) -> tuple[Floats, Floats]:
        # One column more to the left, for what has to be carried over a gap that begins there.
        times, values = samples((first - 1) * axis.step, min((first + count) * axis.step, np.nextafter(now, np.inf)))
        low, high = minmax(times, values, first - 1, axis.step, count + 1)
        return filled(low, axis.step, context.frame.period)[1:], filled(high, axis.step, context.frame.period)[1:]

    low, high = context.cache.columns(key, axis, now, compute)
    known = high[~np.isnan(high)]
    return Line(name, low, high, shown(float(known[-1]) if len(known) else None))


def filled(values: Floats, step: float, period: float) -> Floats:
    """Columns without a sample take the value before, over at most `_FILLED_PERIODS` sampling periods."""
    reach = max(1, math.ceil(_FILLED_PERIODS * period / step))
    places = np.arange(len(values))
    known = np.where(np.isnan(values), -1, places)
    before = np.maximum.accumulate(known) if len(known) else known
    usable = (before >= 0) & (places - before <= reach)
    return np.where(usable, values[np.maximum(before, 0)], np.nan)


def page_seen(context: Context) -> bool:
    """Whether the server's page came at all; true also for what has none, such as a log."""
    asked = [one.values for one in context.frame.select("target_up") if one.labels.get("source") == "metrics"]
    return not asked or any(np.any(np.asarray(values) > 0) for values in asked)


def drawn(
    context: Context,
    lines: list[Line],
    shown: Callable[[float | None], str],
    note: str = "",
    top: float | None = None,
) -> list[Strip]:
    """The lines as a plot that fills the panel."""
    note = note or context.say["no_data"]
    if all(np.all(np.isnan(one.high)) for one in lines) and not page_seen(context):
        note = context.say["no_page"]
    plot = Plot(context.axis, lines, shown, context.marks, note, context.frame.now, top, context.say["now"])
    return paint_plot(plot, context.width, context.height, context.palette)
