"""Reports of damage that a reader met in a log (LOG-36)."""

from __future__ import annotations

import structlog

from brokers.engine.records import error_codes
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DamagedSegment

logger = structlog.get_logger(__name__)


def report(log: Log, damage: DamagedSegment, offset: int) -> int:
    """Returns the error code for a reader at `offset` and logs each damaged position once, because readers retry."""
    if log.last_reported_damage != str(damage):
        log.last_reported_damage = str(damage)
        logger.error(
            "log_damage_met",
            topic=log.topic,
            partition=log.index,
            file=damage.path,
            position=damage.position,
            offset=offset,
        )
    return error_codes.CORRUPT_MESSAGE
