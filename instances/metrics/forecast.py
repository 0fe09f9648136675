"""Forecast of the time when an instance's storage is full, from its growth in the last hours. Pure.

The slope is the Theil-Sen estimator: the median of the slopes between pairs of samples. A single large deletion, by
retention or by hand, changes it little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

from instances.metrics.storage_use import is_storage_full

MS_PER_S = 1_000
MS_PER_HOUR = 3_600_000
# Shortest span and smallest number of samples for a forecast.
SPAN_MS_MIN = 30 * 60 * MS_PER_S
SAMPLES_MIN = 10
# Number of samples that are compared with each other: the number of pairs is quadratic in it.
COMPARED_MAX = 60
# Storage that is full later than this counts as not filling.
HORIZON_S = 365 * 24 * 3_600

# (ms since 1970, bytes), oldest first
Sample = tuple[int, int]


class FillState(StrEnum):
    UNKNOWN = "unknown"
    NOT_FILLING = "not_filling"
    FILLING = "filling"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of storage use. `full_in_s` is None unless `state` is FILLING, `bytes_per_hour` if it is unknown."""

    state: FillState
    full_in_s: int | None = None
    bytes_per_hour: int | None = None


def forecast(samples: Sequence[Sample], *, used_bytes: int, bought_bytes: int) -> Forecast:
    """Returns the forecast for storage that goes on growing as in the samples. `used_bytes` is the latest figure."""
    per_ms = slope(samples)
    per_hour = None if per_ms is None else round(per_ms * MS_PER_HOUR)
    if is_storage_full(used_bytes, bought_bytes):
        return Forecast(state=FillState.FULL, bytes_per_hour=per_hour)
    if per_ms is None:
        return Forecast(state=FillState.UNKNOWN)
    if per_ms <= 0:
        return Forecast(state=FillState.NOT_FILLING, bytes_per_hour=per_hour)
    full_in_s = (bought_bytes - used_bytes) / per_ms / MS_PER_S
    if full_in_s > HORIZON_S:
        return Forecast(state=FillState.NOT_FILLING, bytes_per_hour=per_hour)
    return Forecast(state=FillState.FILLING, full_in_s=round(full_in_s), bytes_per_hour=per_hour)


def slope(samples: Sequence[Sample]) -> float | None:
    """Returns the growth in bytes per ms, or None if there are too few samples."""
    if len(samples) < SAMPLES_MIN or samples[-1][0] - samples[0][0] < SPAN_MS_MIN:
        return None
    step = -(-len(samples) // COMPARED_MAX)
    compared = samples[::-1][::step]
    return median(
        (bytes_a - bytes_b) / (at_a - at_b)
        for (at_a, bytes_a), (at_b, bytes_b) in combinations(compared, 2)
        if at_a != at_b
    )
