"""Minutes in which clients were delayed, kept for longer than brokers do: a month of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django.db import connection

from instances.limits import DELAYED_MINUTES_KEPT
from instances.models import DelayedMinute, Instance

MS_PER_S = 1_000

# Told again by each look, and by several brokers: the longest stays.
_KEEP = """
INSERT INTO instances_delayedminute (instance_id, minute, delay_ms_max) VALUES (%s, %s, %s)
ON CONFLICT (instance_id, minute) DO UPDATE SET delay_ms_max = EXCLUDED.delay_ms_max
WHERE instances_delayedminute.delay_ms_max < EXCLUDED.delay_ms_max
"""


def keep_delays(found: Mapping[str, Mapping[int, int]]) -> int:
    """`found` has, by instance, the longest delay in ms by the minute (ms since 1970). Returns how many were told.

    Instances that are gone are left out: the rows of usage outlive them, these do not.
    """
    known = set(Instance.objects.filter(pk__in=list(found)).values_list("pk", flat=True))
    rows = [
        (instance_id, datetime.fromtimestamp(at_ms / MS_PER_S, UTC), delay_ms)
        for instance_id in sorted(known)
        for at_ms, delay_ms in sorted(found[instance_id].items())
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_KEEP, rows)
    return len(rows)


def forget_delays(now: datetime) -> int:
    """Delete what is older than the longest span of a chart; returns how many rows."""
    deleted, _by_model = DelayedMinute.objects.filter(minute__lt=now - DELAYED_MINUTES_KEPT).delete()
    return deleted
