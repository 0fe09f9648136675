"""The few figures of an instance that lists and gauges show: what flows now, what is stored, who waits."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from instances import interfaces, selectors
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants.errors import DomainError
from tenants.formatting import Use, rate_use, size_use

logger = logging.getLogger(__name__)

MS_PER_S = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Rates in bytes/s and bytes; None is not known (no broker answered), which is told and never shown as zero."""

    produce_bytes_per_s: int | None = None
    consume_bytes_per_s: int | None = None
    stored_bytes: int | None = None
    rules_active: int = 0
    produce: Use
    consume: Use
    storage: Use


def unknown(instance: Instance) -> Figures | None:
    """Limits with dashes beside them, for a page that must not wait for brokers; None as in `figures`."""
    if instance.current_phase not in REACHABLE:
        return None
    return Figures(
        produce=rate_use(None, instance.bandwidth_mb_s),
        consume=rate_use(None, instance.bandwidth_mb_s),
        storage=size_use(None, instance.storage_bytes),
    )


def figures(instance: Instance) -> Figures | None:
    """What an instance does at the moment; None where the phase has nothing to show."""
    if instance.current_phase not in REACHABLE:
        return None
    produced = consumed = stored = None
    active = 0
    try:
        seen = selectors.throughput(instance)
        produced, consumed = seen.produce_bytes_per_s, seen.consume_bytes_per_s
        entries = [entry for entry in seen.throttles.entries if entry.active]
        active = len({(entry.kind, entry.quota, entry.level, str(entry.entity)) for entry in entries})
        if seen.silent and not seen.by_broker:
            produced = consumed = None
        stored = stored_bytes(instance)
    except DomainError as error:
        logger.info("figures not known", extra={"instance": instance.pk, "code": error.code})
    return Figures(
        produce_bytes_per_s=produced,
        consume_bytes_per_s=consumed,
        stored_bytes=stored,
        rules_active=active,
        produce=rate_use(produced, instance.bandwidth_mb_s),
        consume=rate_use(consumed, instance.bandwidth_mb_s),
        storage=size_use(stored, instance.storage_bytes),
    )


def stored_bytes(instance: Instance) -> int | None:
    """Bytes of all replicas of all topics; None when a broker did not answer."""
    sizes = interfaces.observation.it.topic_sizes(instance.pk)
    return None if sizes.silent else sizes.stored_bytes
