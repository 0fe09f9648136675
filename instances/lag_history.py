"""How lags went in the last quarter of an hour: samples taken while somebody looks, in the cache, which may be lost.

Two rings per group: its whole lag (for the trend), and the ends of its partitions' logs (for how far behind in time a
group is: as long ago as the log ended where the group stands now). What was not looked at is not known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from django.core.cache import cache

from instances.group_ports import Partition
from instances.limits import (
    LAG_BEHIND_TOLD_FROM_S,
    LAG_ENDS_PARTITIONS_MAX,
    LAG_GREW_FOR_S,
    LAG_SAMPLE_EVERY_S,
    LAG_SAMPLES_MAX,
)

MS_PER_S = 1_000
KEEP_S = LAG_SAMPLE_EVERY_S * LAG_SAMPLES_MAX
SPAN_MS = KEEP_S * MS_PER_S

# (ms since 1970, messages)
Sample = tuple[int, int]
Ends = tuple[int, dict[Partition, int]]
Kept = TypeVar("Kept", Sample, Ends)


@dataclass(frozen=True, slots=True)
class Behind:
    """How long ago the message was written that a group reads next; at least so long where samples end before."""

    seconds: float
    at_least: bool


def note_lags(instance_id: str, lags: Mapping[str, int], now_ms: int) -> dict[str, tuple[Sample, ...]]:
    """Take a sample of each group's lag; returns what is known of each, oldest first, with this one."""
    keys = {group: _key(instance_id, group, "lags") for group in lags}
    kept = cache.get_many(list(keys.values()))
    grown: dict[str, tuple[Sample, ...]] = {}
    changed: dict[str, tuple[Sample, ...]] = {}
    for group, lag in lags.items():
        before: tuple[Sample, ...] = kept.get(keys[group], ())
        grown[group] = (*_recent(before, now_ms), (now_ms, lag))
        if _is_due(before, now_ms):
            changed[keys[group]] = grown[group][-LAG_SAMPLES_MAX:]
    if changed:
        cache.set_many(changed, KEEP_S)
    return grown


def note_ends(instance_id: str, group: str, ends: Mapping[Partition, int], now_ms: int) -> tuple[Ends, ...]:
    """The same for the ends of a group's partitions, the first so many of them."""
    key = _key(instance_id, group, "ends")
    kept: tuple[Ends, ...] = cache.get(key) or ()
    watched = dict(sorted(ends.items())[:LAG_ENDS_PARTITIONS_MAX])
    grown = (*_recent(kept, now_ms), (now_ms, watched))
    if _is_due(kept, now_ms):
        cache.set(key, grown[-LAG_SAMPLES_MAX:], KEEP_S)
    return grown


def has_grown(samples: Sequence[Sample]) -> bool:
    """Whether a lag grew for a minute: never less than before, and more than then. Pure."""
    if not samples:
        return False
    from_ms = samples[-1][0] - LAG_GREW_FOR_S * MS_PER_S
    older = [sample for sample in samples if sample[0] <= from_ms]
    if not older:
        return False
    lags = [older[-1][1], *(lag for at_ms, lag in samples if at_ms > from_ms)]
    never_less = all(one <= other for one, other in pairwise(lags))
    return never_less and lags[-1] > lags[0]


def behind(place: Partition, committed: int, ends: Sequence[Ends]) -> Behind | None:
    """How far behind in time a group is in a partition, out of samples of its end, oldest first. None: not known.

    Pure.
    """
    known = [(at_ms, found[place]) for at_ms, found in ends if place in found]
    if not known:
        return None
    now_ms, end = known[-1]
    if committed >= end:
        return Behind(0.0, at_least=False)
    passed = [at_ms for at_ms, then in known if then <= committed]
    if not passed and now_ms - known[0][0] < LAG_BEHIND_TOLD_FROM_S * MS_PER_S:
        return None
    since_ms = passed[-1] if passed else known[0][0]
    return Behind((now_ms - since_ms) / MS_PER_S, at_least=not passed)


def _recent(samples: tuple[Kept, ...], now_ms: int) -> tuple[Kept, ...]:
    return tuple(sample for sample in samples if now_ms - SPAN_MS <= sample[0] <= now_ms)


def _is_due(samples: Sequence[Sample | Ends], now_ms: int) -> bool:
    """The last sample is old enough for another; clocks of web workers may differ a little."""
    return not samples or now_ms - samples[-1][0] >= LAG_SAMPLE_EVERY_S * MS_PER_S


def _key(instance_id: str, group: str, what: str) -> str:
    return f"groups:{instance_id}:{what}:{hashlib.sha256(group.encode()).hexdigest()[:32]}"
