"""Writes: deletes counters of broker processes that ended long ago; each start of a broker creates new ones.

A process has ended when a later one of its broker has reported, or its broker was removed. Its records are kept for two
weeks in `__usage` (`brokers.engine.controller.decide`). A record that arrives later is refused and reported,
because it is unknown which part of it was counted.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import connection, transaction

log = structlog.get_logger(__name__)

RETENTION_DAYS: Final = 45
# Maximum number of rows deleted in one transaction.
COUNTERS_PER_DELETE_MAX: Final = 20_000
MS_PER_S: Final = 1_000

# A process without a stored report is taken to be as old as the oldest process that followed it.
_ENDED_PROCESSES: Final = """
SELECT of.cluster_id, of.broker_id, of.broker_epoch
FROM (SELECT DISTINCT cluster_id, broker_id, broker_epoch FROM billing_usagecounter) AS of
LEFT JOIN billing_usageincarnation AS own USING (cluster_id, broker_id, broker_epoch)
WHERE (own.at_ms < %(before_ms)s AND (
        EXISTS (SELECT FROM billing_usageincarnation AS later
                WHERE later.cluster_id = of.cluster_id AND later.broker_id = of.broker_id
                  AND later.broker_epoch > of.broker_epoch)
        OR NOT EXISTS (SELECT FROM brokers_broker AS broker
                       WHERE broker.cluster_id = of.cluster_id AND broker.number = of.broker_id
                         AND broker.removed_at IS NULL)))
   OR (own.at_ms IS NULL AND
        EXISTS (SELECT FROM billing_usageincarnation AS later
                WHERE later.cluster_id = of.cluster_id AND later.broker_id = of.broker_id
                  AND later.broker_epoch > of.broker_epoch AND later.at_ms < %(before_ms)s))
ORDER BY 1, 2, 3
"""

_REFUSE: Final = """
INSERT INTO billing_usageincarnation AS known (cluster_id, broker_id, broker_epoch, sequence, at_ms, is_refused)
VALUES (%s, %s, %s, 0, 0, true)
ON CONFLICT (cluster_id, broker_id, broker_epoch) DO UPDATE SET is_refused = true
"""

_DELETE: Final = """
DELETE FROM billing_usagecounter WHERE id IN (
    SELECT id FROM billing_usagecounter WHERE cluster_id = %s AND broker_id = %s AND broker_epoch = %s LIMIT %s)
"""


def delete_old_counters(now: datetime) -> int:
    """Deletes counters of processes that ended `RETENTION_DAYS` ago; returns their number. Safe to run concurrently."""
    before_ms = int((now - timedelta(days=RETENTION_DAYS)).timestamp() * MS_PER_S)
    with connection.cursor() as cursor:
        cursor.execute(_ENDED_PROCESSES, {"before_ms": before_ms})
        ended_processes = cursor.fetchall()
    deleted = 0
    for process in ended_processes:
        count = _delete_counters(process)
        deleted += count
        log.info("usage_counters_forgotten", cluster=process[0], broker=process[1], epoch=process[2], counters=count)
    return deleted


def _delete_counters(process: tuple[str, int, int]) -> int:
    """Deletes the counters of one process. Further reports are refused first, so that none is added to partial
    counters.
    """
    count = 0
    with connection.cursor() as cursor:
        cursor.execute(_REFUSE, process)
        while True:
            with transaction.atomic():
                cursor.execute(_DELETE, [*process, COUNTERS_PER_DELETE_MAX])
                deleted = cursor.rowcount
            count += deleted
            if deleted < COUNTERS_PER_DELETE_MAX:
                return count
