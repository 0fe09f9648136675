"""Minutes in which clients were delayed, stored for a month, which is longer than brokers keep them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django.db import connection

from instances.limits import DELAYED_MINUTES_KEPT
from instances.models import DelayedMinute, Instance

MS_PER_S = 1_000

# A minute is in several reports, of one broker and of others: the longest delay is stored.
_UPSERT = """
INSERT INTO instances_delayedminute (instance_id, minute, delay_ms_max) VALUES (%s, %s, %s)
ON CONFLICT (instance_id, minute) DO UPDATE SET delay_ms_max = EXCLUDED.delay_ms_max
WHERE instances_delayedminute.delay_ms_max < EXCLUDED.delay_ms_max
"""


def store_delays(delays: Mapping[str, Mapping[int, int]]) -> int:
    """Stores the longest delay in ms by instance and minute (ms since 1970). Returns the number of minutes.

    Instances without a row are left out: unlike usage, delays are not stored longer than their instance.
    """
    existing_ids = set(Instance.objects.filter(pk__in=list(delays)).values_list("pk", flat=True))
    rows = [
        (instance_id, datetime.fromtimestamp(at_ms / MS_PER_S, UTC), delay_ms)
        for instance_id in sorted(existing_ids)
        for at_ms, delay_ms in sorted(delays[instance_id].items())
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, rows)
    return len(rows)


def delete_old_delays(now: datetime) -> int:
    """Deletes minutes older than the longest span of a chart; returns the number of rows."""
    deleted, _by_model = DelayedMinute.objects.filter(minute__lt=now - DELAYED_MINUTES_KEPT).delete()
    return deleted
