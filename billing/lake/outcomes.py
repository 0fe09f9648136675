"""Outcomes of reconciling days with the lake, for the page that closes a month.

They are stored in the cache; a day whose outcome is lost is reconciled again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from django.core.cache import cache as shared_cache

# Outcome of a day whose files are damaged, in place of the number of differing hours.
BROKEN = -1
CACHE_TTL_S = 100 * 24 * 3_600


def store(day: date, outcome: int) -> None:
    """Stores the number of differing hours of a day, or `BROKEN`."""
    shared_cache.set(_key(day), outcome, CACHE_TTL_S)


def of_days(days: Iterable[date]) -> dict[date, int]:
    """Returns the outcomes of the days that have one."""
    keys = {_key(day): day for day in days}
    return {keys[key]: int(outcome) for key, outcome in shared_cache.get_many(list(keys)).items()}


def _key(day: date) -> str:
    return f"lake:outcome:{day:%Y-%m-%d}"
