"""Causes of throttling by minute, stored for a week, to answer "why was I slow on Tuesday"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection

from instances.limits import (
    THROTTLED_CAUSES_MAX,
    THROTTLED_CLIENTS_MAX,
    THROTTLED_MINUTES_KEPT,
    THROTTLED_NAME_CHARS_MAX,
    THROTTLED_ROWS_DELETED_MAX,
)
from instances.models import Instance
from quotas.explain import UNITS

MS_PER_S = 1_000

# A minute is reported several times while it runs: the report with the highest count is the latest.
_UPSERT = """
INSERT INTO instances_throttledminute (instance_id, minute, broker_number, incarnation_ms, count, causes)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (instance_id, minute, broker_number, incarnation_ms)
DO UPDATE SET count = EXCLUDED.count, causes = EXCLUDED.causes
WHERE instances_throttledminute.count < EXCLUDED.count
"""
_DELETE_OLD = """
DELETE FROM instances_throttledminute
WHERE id IN (SELECT id FROM instances_throttledminute WHERE minute < %s ORDER BY minute LIMIT %s)
"""


class ThrottledMinuteReport(NamedTuple):
    """A broker's report of one instance's minute. `incarnation_ms` is the start of the broker's process."""

    instance_id: str
    minute_ms: int
    broker_number: int
    incarnation_ms: int
    causes: Sequence[Mapping[str, Any]]


def store_throttled_minutes(minutes: Sequence[ThrottledMinuteReport]) -> int:
    """Stores reports, except those of instances without a row. Returns the number of stored ones."""
    ids = {minute.instance_id for minute in minutes}
    existing_ids = set(Instance.objects.filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()
    rows = [
        (
            minute.instance_id,
            datetime.fromtimestamp(minute.minute_ms / MS_PER_S, UTC),
            minute.broker_number,
            minute.incarnation_ms,
            sum(int(cause["count"]) for cause in minute.causes),
            json.dumps(heaviest_causes(minute.causes)),
        )
        # The same order in all writers, so that they cannot deadlock.
        for minute in sorted(minutes, key=lambda minute: minute[:4])
        if minute.instance_id in existing_ids
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, rows)
    return len(rows)


def heaviest_causes(causes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the heaviest causes with shortened names, so that the size of a row is bounded. Pure."""
    heaviest = sorted(causes, key=lambda cause: (-int(cause["waited_ms"]), -int(cause["count"])))
    return [
        {
            "kind": cause["kind"],
            "quota": cause["quota"],
            "level": cause["level"],
            "entity": {part: _shortened(name) for part, name in cause["entity"].items()},
            "unit": UNITS.get(cause["quota"]),
            "whole_limit_per_s": cause["whole_limit_per_s"],
            "count": int(cause["count"]),
            "waited_ms": int(cause["waited_ms"]),
            "delay_ms_max": int(cause["longest_ms"]),
            "clients": [
                {
                    "user": _shortened(user),
                    "client_id": _shortened(client_id),
                    "count": int(count),
                    "waited_ms": int(waited_ms),
                }
                for user, client_id, count, waited_ms in cause["clients"][:THROTTLED_CLIENTS_MAX]
            ],
        }
        for cause in heaviest[:THROTTLED_CAUSES_MAX]
    ]


def _shortened(name: str | None) -> str | None:
    return None if name is None else name[:THROTTLED_NAME_CHARS_MAX].replace("\x00", "\ufffd")


def delete_old_throttled_minutes(now: datetime) -> int:
    """Deletes up to `THROTTLED_ROWS_DELETED_MAX` old rows; returns their number."""
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_OLD, (now - THROTTLED_MINUTES_KEPT, THROTTLED_ROWS_DELETED_MAX))
        return cursor.rowcount
