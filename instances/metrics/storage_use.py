"""Used part of an instance's storage, and the decision that it is full. Pure.

Conditions, forecasts, alert rules, growth and the expiry of deleted topics all decide here. Produce itself is refused
by the controller of the cluster, by the same rule: at 100 %, and then until less than 98 % is used.
"""

from __future__ import annotations

FULL_PERCENT = 100


def used_percent(used_bytes: int, bought_bytes: int) -> int:
    """Returns the used part in whole percent, rounded down, so that 100 means that nothing is left."""
    return used_bytes * 100 // bought_bytes if bought_bytes else FULL_PERCENT


def is_storage_full(used_bytes: int, bought_bytes: int, *, is_refused: bool = False) -> bool:
    """Returns True if nothing is left, and while brokers still refuse produce after that (`is_refused`)."""
    return is_refused or used_percent(used_bytes, bought_bytes) >= FULL_PERCENT
