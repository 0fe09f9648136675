"""What is said of a log in which a reader met damage, and what the reader is told (LOG-36)."""

from __future__ import annotations

import structlog

from brokers.engine.records import error_codes
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DamagedSegment

logger = structlog.get_logger(__name__)


def met(log: Log, damage: DamagedSegment, offset: int) -> int:
    """The error code for whoever reads from `offset` on. Said once for each place: readers ask again and again."""
    if log.damage_reported != str(damage):
        log.damage_reported = str(damage)
        logger.error(
            "log_damage_met",
            topic=log.topic,
            partition=log.index,
            file=damage.path,
            position=damage.position,
            offset=offset,
        )
    return error_codes.CORRUPT_MESSAGE
