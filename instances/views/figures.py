"""Figures of an instance for lists and gauges: current rates, stored bytes, active throttles."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from instances import interfaces, selectors
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from tenants.errors import DomainError
from tenants.formatting import Utilization, rate_use, size_use

logger = logging.getLogger(__name__)

MS_PER_S = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFigures:
    """Rates in bytes/s and stored bytes. None is unknown (no broker answered), which is never shown as zero."""

    produce_bytes_per_s: int | None = None
    consume_bytes_per_s: int | None = None
    stored_bytes: int | None = None
    rules_active: int = 0
    produce: Utilization
    consume: Utilization
    storage: Utilization


def figures_without_values(instance: Instance) -> InstanceFigures | None:
    """Returns the limits without values, for a page that must not wait for brokers; None as in `figures`."""
    if instance.current_phase not in REACHABLE:
        return None
    return InstanceFigures(
        produce=rate_use(None, instance.bandwidth_mb_s),
        consume=rate_use(None, instance.bandwidth_mb_s),
        storage=size_use(None, instance.storage_bytes),
    )


def figures(instance: Instance) -> InstanceFigures | None:
    """Returns the current figures of an instance; None in a phase without brokers."""
    if instance.current_phase not in REACHABLE:
        return None
    produced = consumed = stored = None
    active = 0
    try:
        throughput = selectors.throughput(instance)
        produced, consumed = throughput.produce_bytes_per_s, throughput.consume_bytes_per_s
        entries = [entry for entry in throughput.throttles.entries if entry.active]
        active = len({(entry.kind, entry.quota, entry.level, str(entry.entity)) for entry in entries})
        if throughput.silent and not throughput.by_broker:
            produced = consumed = None
        stored = stored_bytes(instance)
    except DomainError as error:
        logger.info("figures are unknown", extra={"instance": instance.pk, "code": error.code})
    return InstanceFigures(
        produce_bytes_per_s=produced,
        consume_bytes_per_s=consumed,
        stored_bytes=stored,
        rules_active=active,
        produce=rate_use(produced, instance.bandwidth_mb_s),
        consume=rate_use(consumed, instance.bandwidth_mb_s),
        storage=size_use(stored, instance.storage_bytes),
    )


def stored_bytes(instance: Instance) -> int | None:
    """Returns the bytes of all replicas of all topics; None if a broker did not answer."""
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk)
    return sizes.known_stored_bytes
