"""Samples of the used bytes of instances over the last half day, in the cache, which may lose them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.core.cache import cache

from instances.limits import STORAGE_SAMPLE_EVERY_S, STORAGE_SAMPLES_MAX
from instances.metrics.forecast import Sample

MS_PER_S = 1_000
RETENTION_S = STORAGE_SAMPLE_EVERY_S * STORAGE_SAMPLES_MAX


def record_samples(used_bytes: Mapping[str, int], now_ms: int) -> int:
    """Adds a sample of used bytes for each instance whose last sample is older than half of the sampling interval.

    Returns the number of samples added.
    """
    cached = cache.get_many([_key(instance_id) for instance_id in used_bytes])
    extended: dict[str, tuple[Sample, ...]] = {}
    for instance_id, used in used_bytes.items():
        stored = cached.get(_key(instance_id), ())
        samples = [(at_ms, value) for at_ms, value in stored if 0 <= now_ms - at_ms <= RETENTION_S * MS_PER_S]
        if samples and now_ms - samples[-1][0] < STORAGE_SAMPLE_EVERY_S * MS_PER_S // 2:
            continue
        extended[_key(instance_id)] = (*samples, (now_ms, used))[-STORAGE_SAMPLES_MAX:]
    if extended:
        cache.set_many(extended, RETENTION_S)
    return len(extended)


def samples_of(instance_id: str) -> tuple[Sample, ...]:
    """Returns the samples of an instance, oldest first."""
    cached: tuple[Sample, ...] = cache.get(_key(instance_id)) or ()
    return cached


def latest_samples(instance_ids: Iterable[str]) -> dict[str, Sample]:
    """Returns the last sample of each instance that has one."""
    keys = {_key(instance_id): instance_id for instance_id in instance_ids}
    return {keys[key]: samples[-1] for key, samples in cache.get_many(list(keys)).items() if samples}


def _key(instance_id: str) -> str:
    return f"storage:{instance_id}:used"
