"""What came of working days out again from the lake, for the page that closes a month. Kept in the cache: a day whose
outcome is lost is worked out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from django.core.cache import cache as shared_cache

# In place of a number of hours that differ: the lake is not what was written.
BROKEN = -1
KEPT_S = 100 * 24 * 3_600


def note(day: date, outcome: int) -> None:
    """How many hours of a day differ, or `BROKEN`."""
    shared_cache.set(_key(day), outcome, KEPT_S)


def of_days(days: Iterable[date]) -> dict[date, int]:
    """Of those whose outcome is known."""
    keys = {_key(day): day for day in days}
    return {keys[key]: int(outcome) for key, outcome in shared_cache.get_many(list(keys)).items()}


def _key(day: date) -> str:
    return f"lake:outcome:{day:%Y-%m-%d}"
