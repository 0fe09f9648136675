"""When an instance's storage is full, by how it grew in the last hours. Pure.

The slope is Theil and Sen's: the median of the slopes between pairs of samples. What retention deletes at once, or
somebody by hand, moves it little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

MS_PER_S = 1_000
MS_PER_HOUR = 3_600_000
# Less says nothing about days to come.
SPAN_MS_MIN = 30 * 60 * MS_PER_S
SAMPLES_MIN = 10
# So many of the samples are compared with each other.
COMPARED_MAX = 60
# What takes longer than this to fill is not filling.
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
    """`full_in_s` of what is filling alone; `bytes_per_hour` None where it is not known."""

    state: FillState
    full_in_s: int | None = None
    bytes_per_hour: int | None = None


def forecast(samples: Sequence[Sample], *, used_bytes: int, bought_bytes: int) -> Forecast:
    """What the samples say, if it goes on like this. `used_bytes` is the latest figure."""
    per_ms = slope(samples)
    per_hour = None if per_ms is None else round(per_ms * MS_PER_HOUR)
    if used_bytes >= bought_bytes:
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
    """Bytes per ms; None where there is not enough to say."""
    if len(samples) < SAMPLES_MIN or samples[-1][0] - samples[0][0] < SPAN_MS_MIN:
        return None
    step = -(-len(samples) // COMPARED_MAX)
    compared = samples[::-1][::step]
    return median(
        (bytes_a - bytes_b) / (at_a - at_b)
        for (at_a, bytes_a), (at_b, bytes_b) in combinations(compared, 2)
        if at_a != at_b
    )
