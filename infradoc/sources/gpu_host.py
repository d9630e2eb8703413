"""Whether this host has a GPU of a vendor at all: so that a host without one hears nothing about it."""

from __future__ import annotations

from pathlib import Path

_NVIDIA = "0x10de"
_AMD = "0x1002"
_DISPLAY = "0x03"  # PCI class of display and 3D controllers


def has_nvidia(root: Path = Path("/")) -> bool:
    """Whether the NVIDIA driver's files or an NVIDIA GPU on the PCI bus are there."""
    files = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia0")
    return any((root / name).exists() for name in files) or _NVIDIA in _vendors(root, "sys/bus/pci/devices", "")


def has_amd(root: Path = Path("/")) -> bool:
    """Whether an AMD GPU is among the kernel's display devices."""
    return _AMD in _vendors(root, "sys/class/drm", "device")


def _vendors(root: Path, folder: str, inner: str) -> set[str]:
    found = set()
    try:
        entries = list((root / folder).iterdir())
    except OSError:
        return set()
    for entry in entries:
        device = entry / inner if inner else entry
        kind = _line(device / "class")
        if kind.startswith(_DISPLAY) or (inner and not kind):
            found.add(_line(device / "vendor"))
    return found


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
