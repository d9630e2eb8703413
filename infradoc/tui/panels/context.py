"""What a painter of a panel gets: the frozen series, the room it has, the words, and what the engine told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from infradoc.fleet.frozen import Frozen
from infradoc.fleet.model import Mark
from infradoc.tui.downsample import Axis, ColumnCache, axis_for
from infradoc.tui.paint import Palette
from infradoc.tui.panels.block_holders import Piece, clean_pieces
from infradoc.tui.widgets.plot import plot_width

HISTOGRAMS = ("llm_time_to_first_token_seconds", "llm_inter_token_latency_seconds")
CLIENT_HISTOGRAMS = ("client_time_to_first_token_seconds", "client_inter_token_latency_seconds")
# All that the panels draw from. One look at the store takes these out.
NAMES = (
    "llm_generation_tokens_total",
    "llm_prompt_tokens_total",
    "llm_prompt_computed_tokens_total",
    "llm_requests_waiting",
    "llm_requests_running",
    "llm_kv_cache_usage_ratio",
    "llm_request_stage_seconds_sum",
    "llm_request_seconds_count",
    "llm_request_seconds_sum",
    *(f"{name}_bucket" for name in (*HISTOGRAMS, *CLIENT_HISTOGRAMS)),
    "gpu_info",
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_memory_size_bytes",
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "host_cpus",
    "host_cpu_seconds_total",
    "host_load1",
    "host_memory_size_bytes",
    "host_memory_available_bytes",
    "proc_resident_memory_bytes",
    "proc_cpu_seconds_total",
    "target_up",
)
SHORTEST = 60.0  # seconds: what a plot shows at least


BlockView = Literal["state", "owner", "age"]
BLOCK_VIEWS: tuple[BlockView, ...] = get_args(BlockView)


@dataclass(frozen=True)  # no slots: what is worked out once for several paintings is kept in the instance
class EngineTold:
    """What the admin API gave last: `why` says in one sentence why it gives nothing."""

    blocks: Mapping[str, Any] = field(default_factory=dict)
    requests: Sequence[Mapping[str, Any]] | None = None
    now: float = 0.0
    why: str = ""

    @cached_property
    def pieces(self) -> list[Piece]:
        """The map with owners and ages; 10,000 rows take 20 ms to join, and are painted more than once."""
        return clean_pieces(self.blocks)


@dataclass(frozen=True, slots=True)
class Context:
    """One panel to paint. `begin` and `end` are the ends of the time axis, `frame.now` the moment shown."""

    frame: Frozen
    begin: float
    end: float
    marks: Sequence[Mark]
    cache: ColumnCache
    palette: Palette
    say: Mapping[str, str]
    engine: EngineTold
    width: int = 40
    height: int = 8
    block_view: BlockView = "state"

    def sized(self, width: int, height: int) -> Context:
        """The same for a panel of another size."""
        return replace(self, width=max(10, width), height=max(3, height))

    @property
    def axis(self) -> Axis:
        """The time axis of a plot that fills the panel."""
        begin = min(self.begin, self.end - SHORTEST)
        return axis_for(begin, self.end, plot_width(self.width), self.frame.period)
