"""Runs of sample data and of "push the limit" in the shared cache. A run occupies one of the slots of its tenant, and
one of those of all tenants. If the cache is lost, its runs end.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable

from django.core.cache import cache
from redis import RedisError

from instances.quickstart.limits import SAMPLE_RUN_S, SAMPLE_RUNS_MAX, SAMPLE_RUNS_PER_TENANT_MAX

logger = logging.getLogger(__name__)

SAMPLES, PUSH = "instance", "push"

# A run that was not ended counts as ended after this time.
RUN_EXPIRES_S = 2 * SAMPLE_RUN_S


def begin(tenant_id: str, instance_id: str, kind: str = SAMPLES) -> str:
    """Returns the id of a new run; empty if the instance has a run of this kind, if no slot is free, or if the cache
    does not answer.
    """
    run = secrets.token_hex(8)
    tenant_slots = [f"samples:tenant:{tenant_id}:{number}" for number in range(SAMPLE_RUNS_PER_TENANT_MAX)]
    common_slots = [f"samples:all:{number}" for number in range(SAMPLE_RUNS_MAX)]
    slots: list[str] = []
    try:
        for slot_keys in ([_key(instance_id, kind)], tenant_slots, common_slots):
            slot = _take_slot(slot_keys, run)
            if slot is None:
                cache.delete_many(slots)
                return ""
            slots.append(slot)
        cache.set(_slots_key(run), slots, RUN_EXPIRES_S)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        return ""
    return run


def is_current(instance_id: str, run: str, kind: str = SAMPLES) -> bool:
    """True while the run is active."""
    try:
        return bool(cache.get(_key(instance_id, kind)) == run)
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)
        return False


def end(run: str) -> None:
    """Frees the slots of a run."""
    try:
        cache.delete_many([*(cache.get(_slots_key(run)) or ()), _slots_key(run)])
    except (RedisError, OSError) as error:
        logger.warning("the cache does not answer: %s", type(error).__name__)


def _take_slot(slot_keys: Iterable[str], run: str) -> str | None:
    return next((key for key in slot_keys if cache.add(key, run, RUN_EXPIRES_S)), None)


def _key(instance_id: str, kind: str) -> str:
    return f"samples:{kind}:{instance_id}"


def _slots_key(run: str) -> str:
    return f"samples:run:{run}"
