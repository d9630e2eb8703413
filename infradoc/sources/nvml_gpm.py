"""GPM metrics of Hopper and newer: how busy the SMs, the tensor pipe and the memory really were between two looks."""

from __future__ import annotations

from typing import Any

from infradoc.sources.nvml_calls import Calls

_METRICS = {2: "sm_active", 5: "tensor_active", 10: "dram_active"}  # percent of the time between two samples


class Gpm:
    """Two sample buffers of one device, used in turn: a metric is a difference of samples."""

    def __init__(self, calls: Calls, handle: Any) -> None:
        self._calls = calls
        self._handle = handle
        self._samples: list[Any] = []
        self._filled = False
        self._request: Any = None
        support = calls.get("nvmlGpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            self._samples = [calls.get("nvmlGpmSampleAlloc") for _ in range(2)]
            self._request = calls.nvml.c_nvmlGpmMetricsGet_t() if None not in self._samples else None

    @property
    def supported(self) -> bool:
        """Whether the device has these metrics."""
        return bool(self._samples) and None not in self._samples

    def read(self) -> dict[str, float]:
        """Ratios by name since the look before; empty at the first one. At most two calls."""
        if not self.supported:
            return {}
        before, spare = self._samples
        taken = self._calls.get("nvmlGpmSampleGet", self._handle, spare if self._filled else before)
        if taken is None:
            return {}
        if not self._filled:
            self._filled = True
            return {}
        self._samples = [spare, before]
        return self._ratios(before, spare)

    def _ratios(self, before: Any, after: Any) -> dict[str, float]:
        request = self._request
        request.version = self._calls.nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = before, after
        for place, metric in enumerate(_METRICS):
            request.metrics[place].metricId = metric
        if self._calls.get("nvmlGpmMetricsGet", request) is None:
            return {}
        shown = (request.metrics[place] for place in range(len(_METRICS)))
        return {_METRICS[one.metricId]: one.value / 100 for one in shown if one.nvmlReturn == 0}

    def close(self) -> None:
        """Give the buffers back. The caller makes sure that the library is still there."""
        for sample in self._samples:
            if sample is not None:
                self._calls.get("nvmlGpmSampleFree", sample)
        self._samples = []
