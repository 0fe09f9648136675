"""Growth of an instance whose storage may grow automatically. Pure."""

from __future__ import annotations

from instances.limits import BYTES_PER_GB, GROW_FROM_PERCENT
from instances.metrics.storage_use import used_percent


def next_storage_gb(storage_gb: int, used_bytes: int, *, step_gb: int | None, max_gb: int | None) -> int | None:
    """Returns the next size of the storage in GB: as many steps as needed until less than `GROW_FROM_PERCENT` is used,
    at most `max_gb`.
    None: less is used now, or the storage may not grow.
    """
    if not step_gb or max_gb is None or storage_gb >= max_gb:
        return None
    if used_percent(used_bytes, storage_gb * BYTES_PER_GB) < GROW_FROM_PERCENT:
        return None
    # The first sufficient size is one GB above the size of which the used bytes are this percentage.
    enough_gb = used_bytes * 100 // (GROW_FROM_PERCENT * BYTES_PER_GB) + 1
    steps = max(1, -(-(enough_gb - storage_gb) // step_gb))
    return min(storage_gb + steps * step_gb, max_gb)
