"""What the volume of a log directory says of itself."""

from __future__ import annotations

import os
from pathlib import Path


def volume(path: Path) -> dict[str, int]:
    """Its size, and what of it is usable; nothing when it does not say."""
    try:
        result = os.statvfs(path)
    except OSError:
        return {}
    return {"total_bytes": result.f_blocks * result.f_frsize, "usable_bytes": result.f_bavail * result.f_frsize}
