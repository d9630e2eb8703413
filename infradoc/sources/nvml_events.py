"""Xid events from the driver: registered once, then asked for without waiting."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from infradoc.sources.nvml_device import NvmlDevice

_XID = 0x8
_MOST = 16  # events taken at one look: a device that is dying may send them without end
_UNSEEN = "this driver does not report them to programs; read the kernel log (dmesg | grep -i xid)"


class XidEvents:
    """One event set over all devices. `unseen` names the devices whose Xid errors cannot be seen here."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._devices: dict[int, NvmlDevice] = {}
        self.unseen: set[int] = set()
        self.made = 0

    def register(self, devices: Sequence[NvmlDevice]) -> None:
        """Ask for the events of devices that are open and were not asked before. Only those from then on are told."""
        for device in devices:
            address = _address(device.handle)
            if address is None or address in self._devices or device.index in self.unseen:
                continue
            self.made += 1
            try:
                if self._set is None:
                    self._set = self._nvml.nvmlEventSetCreate()
                self._nvml.nvmlDeviceRegisterEvents(device.handle, _XID, self._set)
            except self._nvml.NVMLError:
                self.unseen.add(device.index)
                continue
            self._devices[address] = device

    def poll(self) -> list[dict[str, Any]]:
        """Events since the last look, as parts of a row. Never waits."""
        found: list[dict[str, Any]] = []
        while self._devices and len(found) < _MOST:
            self.made += 1
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError:
                break  # nothing there, or a device is gone: its own calls tell
            if int(event.eventType) & _XID:
                found.append(self._row(event))
        return found

    def _row(self, event: Any) -> dict[str, Any]:
        row: dict[str, Any] = {"code": int(event.eventData)}
        device = self._devices.get(_address(event.device) or 0)
        if device is not None:
            row.update(gpu=device.index, uuid=device.uuid, pci=device.pci)
        return row

    def why_not(self) -> str:
        """What cannot be seen, in a sentence; empty when all can."""
        names = ", ".join(map(str, sorted(self.unseen)))
        return f"Xid errors of GPU {names}: {_UNSEEN}." if names else ""

    def close(self) -> None:
        """Free the set. The caller makes sure that the library is still there."""
        if self._set is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._set)
        self._set, self._devices = None, {}


def _address(handle: Any) -> int | None:
    """The address behind a device handle: handles of one device are equal by it alone."""
    return None if handle is None else ctypes.cast(handle, ctypes.c_void_p).value
