"""Where remediation keeps what must outlive the process."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

STATE_DIR_ENV = "INFRADOC_STATE_DIR"


def state_dir() -> Path:
    """INFRADOC_STATE_DIR, else the user's state folder. Not created here."""
    override = os.environ.get(STATE_DIR_ENV, "")
    return Path(override) if override else Path(platformdirs.user_state_path("infradoc"))
