"""NVIDIA GPUs of this host through NVML (the driver's own library, by way of `pynvml`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from infradoc.model import Reading
from infradoc.sources.gpu_host import has_nvidia
from infradoc.sources.gpu_processes import Family, in_host_namespace, process_rows
from infradoc.sources.gpu_rows import PROVIDES, ROW_FILE, GpuRows, lost_sentence
from infradoc.sources.nvml_calls import LIBRARY_NOT_FOUND, MISMATCH, NO_PERMISSION
from infradoc.sources.nvml_device import NvmlDevice
from infradoc.sources.nvml_events import XidEvents
from infradoc.sources.nvml_identity import text

_RETRY_SECONDS = 60.0  # a driver may be loaded, or updated, while we watch


class NvmlSource:
    """Looks at all NVIDIA GPUs of this host, or at those with the given indices.

    family: the server's processes on this host, asked for at every look. asked: the configuration wants GPUs, so a host
    without any is told about. The library is loaded at the first look, not before.
    """

    name = "nvml"
    interval = 0.0
    provides = PROVIDES
    row_file = ROW_FILE

    def __init__(
        self,
        family: Callable[[], Family] = Family,
        indices: Sequence[int] = (),
        asked: bool = False,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._family = family
        self._indices = tuple(indices)
        self._asked = asked
        self._root = root
        self._clock = clock
        self._next_open = float("-inf")
        self._nvml: Any = None
        self._closed = False
        self._reason = ""
        self._driver = ""
        self._devices: list[NvmlDevice] = []
        self._xids: XidEvents | None = None
        self._rows = GpuRows()
        self._host_pids = in_host_namespace()
        self.last_row: dict[str, Any] = {}

    @property
    def calls(self) -> int:
        """NVML calls made so far."""
        return sum(device.calls.made for device in self._devices) + (self._xids.made if self._xids else 0)

    def is_supported(self) -> bool:
        """Whether the library is there and sees a GPU; tried again once a minute while it does not."""
        if self._nvml is None and not self._closed and self._clock() >= self._next_open:
            self._next_open = self._clock() + _RETRY_SECONDS
            self._open()
        return self._nvml is not None and not self._closed

    def why_not(self) -> str | None:
        """What cannot be seen and why; None on a host without NVIDIA GPUs that nobody asked about."""
        if self._nvml is None:
            return self._reason or None
        parts = []
        lost = self._lost()
        if lost:
            parts.append(lost_sentence(lost))
        missing = [index for index in self._indices if all(index != device.index for device in self._devices)]
        if missing:
            parts.append(f"GPU {', '.join(map(str, missing))} of the configuration is not there.")
        closed = [device.index for device in self._devices if device.handle is None and device.lost is None]
        if closed:
            parts.append(f"GPU {', '.join(map(str, closed))} cannot be opened; may this user read /dev/nvidia*?")
        parts += [said for said in (self._xids.why_not() if self._xids else "",) if said]
        denied = sorted({name for device in self._devices for name in device.calls.denied()})
        if denied:
            parts.append(f"These figures need more rights: {', '.join(denied)}.")
        return " ".join(parts) or None

    def _open(self) -> None:
        try:
            import pynvml
        except ImportError:
            self._reason = "nvidia-ml-py is not installed." if self._wanted() else ""
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._reason = self._why_closed(int(error.value), str(error))
            return
        try:
            count = int(pynvml.nvmlDeviceGetCount())
            self._driver = text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError as error:
            count, self._reason = 0, f"NVML does not answer: {error}."
        chosen = [index for index in range(count) if not self._indices or index in self._indices]
        if not chosen:
            self._reason = self._reason or ("NVML sees no GPU." if self._wanted() else "")
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            return
        self._nvml, self._xids = pynvml, XidEvents(pynvml)
        self._devices = [NvmlDevice(pynvml, index) for index in chosen]

    def _wanted(self) -> bool:
        return self._asked or has_nvidia(self._root)

    def _why_closed(self, code: int, text: str) -> str:
        if code == MISMATCH:
            return "NVML and the loaded driver have different versions after an update: reload the driver or reboot."
        if code == NO_PERMISSION:
            return "this user may not open the NVIDIA devices (/dev/nvidia*)."
        if not self._wanted():
            return ""
        if code == LIBRARY_NOT_FOUND:
            return (
                "libnvidia-ml.so.1 cannot be loaded; a container needs it mounted (NVIDIA_DRIVER_CAPABILITIES=utility)."
            )
        return f"NVML cannot be used: {text}."

    def read(self, now: float) -> Reading:
        """One row about the GPUs, as samples and events; `last_row` keeps the row itself for `record`."""
        started = time.monotonic()
        family = self._family()

        def owners(held: Sequence[tuple[int, int | None]]) -> list[dict[str, Any]]:
            return process_rows(held, family, self._host_pids, self._root / "proc")

        rows = [device.row(now, owners) for device in self._devices]
        row: dict[str, Any] = {"t": round(now, 3), "source": self.name, "driver": self._driver}
        row["gpus"] = [one for one in rows if one is not None]
        if self._xids is not None:
            self._xids.register([device for device in self._devices if device.lost is None])
            row["xids"] = self._xids.poll()
        row["lost"] = self._lost()
        self.last_row = {key: value for key, value in row.items() if value or key == "gpus"}
        if not row["gpus"] and not row["lost"]:
            return Reading(self.name, now, error=self.why_not() or "No GPU answers NVML.")
        return self._rows.reading(self.last_row, time.monotonic() - started)

    def _lost(self) -> list[dict[str, Any]]:
        return [
            {"gpu": device.index, "uuid": device.uuid, "pci": device.pci, "code": device.lost}
            for device in self._devices
            if device.lost is not None
        ]

    def close(self) -> None:
        """Give back buffers, events and the library."""
        if self._nvml is None or self._closed:
            return
        self._closed = True
        for device in self._devices:
            device.close()
        if self._xids is not None:
            self._xids.close()
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
