"""By how much an instance grows that may grow by itself. Pure."""

from __future__ import annotations

from instances.limits import BYTES_PER_GB, GROW_FROM_PERCENT


def grown_gb(storage_gb: int, used_bytes: int, *, step_gb: int | None, max_gb: int | None) -> int | None:
    """Its next size: as many steps as it takes until less than so many percent are used, `max_gb` at most. None: it has
    room, or may not grow.
    """
    if not step_gb or max_gb is None or storage_gb >= max_gb:
        return None
    if not _is_used(storage_gb, used_bytes):
        return None
    # The first size with room is one GB beyond what this percentage makes of what is used.
    enough_gb = used_bytes * 100 // (GROW_FROM_PERCENT * BYTES_PER_GB) + 1
    steps = max(1, -(-(enough_gb - storage_gb) // step_gb))
    return min(storage_gb + steps * step_gb, max_gb)


def _is_used(storage_gb: int, used_bytes: int) -> bool:
    return used_bytes * 100 >= storage_gb * BYTES_PER_GB * GROW_FROM_PERCENT
