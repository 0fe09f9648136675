"""Sizes of the volume of a log directory."""

from __future__ import annotations

import os
from pathlib import Path


def volume(path: Path) -> dict[str, int]:
    """Returns the total and the usable bytes of the volume; empty if they are unknown."""
    try:
        result = os.statvfs(path)
    except OSError:
        return {}
    return {"total_bytes": result.f_blocks * result.f_frsize, "usable_bytes": result.f_bavail * result.f_frsize}
