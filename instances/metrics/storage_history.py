"""How the used bytes of instances went in the last half day: samples in the cache, which may be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.core.cache import cache

from instances.limits import STORAGE_SAMPLE_EVERY_S, STORAGE_SAMPLES_MAX
from instances.metrics.forecast import Sample

MS_PER_S = 1_000
KEEP_S = STORAGE_SAMPLE_EVERY_S * STORAGE_SAMPLES_MAX


def note(used_bytes: Mapping[str, int], now_ms: int) -> int:
    """Take a sample of each instance; one that has a sample of a moment ago has none. How many were taken."""
    kept = cache.get_many([_key(instance_id) for instance_id in used_bytes])
    grown: dict[str, tuple[Sample, ...]] = {}
    for instance_id, used in used_bytes.items():
        samples = [item for item in kept.get(_key(instance_id), ()) if 0 <= now_ms - item[0] <= KEEP_S * MS_PER_S]
        if samples and now_ms - samples[-1][0] < STORAGE_SAMPLE_EVERY_S * MS_PER_S // 2:
            continue
        grown[_key(instance_id)] = (*samples, (now_ms, used))[-STORAGE_SAMPLES_MAX:]
    if grown:
        cache.set_many(grown, KEEP_S)
    return len(grown)


def samples_of(instance_id: str) -> tuple[Sample, ...]:
    """Oldest first."""
    kept: tuple[Sample, ...] = cache.get(_key(instance_id)) or ()
    return kept


def latest_of(instance_ids: Iterable[str]) -> dict[str, Sample]:
    """The last sample of each instance that has one."""
    keys = {_key(instance_id): instance_id for instance_id in instance_ids}
    return {keys[key]: samples[-1] for key, samples in cache.get_many(list(keys)).items() if samples}


def _key(instance_id: str) -> str:
    return f"storage:{instance_id}:used"
