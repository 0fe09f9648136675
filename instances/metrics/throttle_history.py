"""Causes of throttling in a past span: the stored minutes of an instance, summed over brokers by step and cause."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from instances.limits import THROTTLED_CLIENTS_MAX, THROTTLED_STEPS_SHOWN_MAX
from instances.models import Instance

# A rule whose limit changed stays one cause, with the highest of its limits.
_STEPS = """
WITH cause AS (
    SELECT to_timestamp(floor(extract(epoch FROM kept.minute) / %(step_s)s) * %(step_s)s) AS start,
           item->>'kind' AS kind, item->>'quota' AS quota, (item->>'level')::int AS level, item->'entity' AS entity,
           kept.broker_number AS broker, item
    FROM instances_throttledminute kept CROSS JOIN LATERAL jsonb_array_elements(kept.causes) item
    WHERE kept.instance_id = %(instance_id)s AND kept.minute >= %(start)s AND kept.minute < %(end)s
), heaviest AS (
    SELECT start, kind, quota, level, entity, sum((item->>'count')::bigint) AS count,
           sum((item->>'waited_ms')::bigint) AS waited_ms, max((item->>'delay_ms_max')::bigint) AS delay_ms_max,
           max((item->>'whole_limit_per_s')::float8) AS whole_limit_per_s, array_agg(DISTINCT broker) AS brokers
    FROM cause GROUP BY start, kind, quota, level, entity
    ORDER BY start DESC, waited_ms DESC, count DESC, kind, quota LIMIT %(limit)s
), client AS (
    SELECT start, kind, quota, level, entity, each->>'user' AS name, each->>'client_id' AS client_id,
           row_number() OVER (
               PARTITION BY start, kind, quota, level, entity
               ORDER BY sum((each->>'waited_ms')::bigint) DESC, sum((each->>'count')::bigint) DESC
           ) AS place
    FROM cause CROSS JOIN LATERAL jsonb_array_elements(item->'clients') each
    WHERE start >= (SELECT min(start) FROM heaviest)
    GROUP BY start, kind, quota, level, entity, name, client_id
)
SELECT heaviest.*, (
    SELECT coalesce(jsonb_agg(jsonb_build_array(client.name, client.client_id) ORDER BY client.place), '[]')
    FROM client
    WHERE client.place <= %(clients)s AND client.start = heaviest.start AND client.kind = heaviest.kind
          AND client.quota = heaviest.quota AND client.level IS NOT DISTINCT FROM heaviest.level
          AND client.entity = heaviest.entity
)
FROM heaviest ORDER BY start DESC, waited_ms DESC, count DESC, kind, quota
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCause:
    """A rule that throttled clients in the step that began at `start`, over all brokers. `waited_ms` is 0 for a rule
    that refused requests instead of delaying them.
    """

    start: datetime
    kind: str
    quota: str
    level: int | None
    entity: dict[str, str | None]
    count: int
    waited_ms: int
    delay_ms_max: int
    whole_limit_per_s: float | None
    brokers: tuple[int, ...]
    clients: tuple[tuple[str, str], ...]


def past_causes(
    instance: Instance, *, start: datetime, end: datetime, step_s: int
) -> tuple[list[PastCause], datetime | None]:
    """Returns the causes by step of `step_s` seconds, latest step first and longest waits first within a step; and the
    start of the oldest listed step if causes were left out, else None.
    """
    parameters: dict[str, Any] = {
        "instance_id": instance.pk,
        "start": start,
        "end": end,
        "step_s": step_s,
        "limit": THROTTLED_STEPS_SHOWN_MAX + 1,
        "clients": THROTTLED_CLIENTS_MAX,
    }
    with connection.cursor() as cursor:
        cursor.execute(_STEPS, parameters)
        rows = cursor.fetchall()
    is_cut = len(rows) > THROTTLED_STEPS_SHOWN_MAX
    rows = rows[:THROTTLED_STEPS_SHOWN_MAX]
    result = [
        PastCause(
            start=step_start,
            kind=kind,
            quota=quota,
            level=level,
            entity=_decoded_json(entity),
            count=int(count),
            waited_ms=int(waited_ms),
            delay_ms_max=int(delay_ms_max),
            whole_limit_per_s=limit_per_s,
            brokers=tuple(brokers),
            clients=tuple((name, client_id) for name, client_id in _decoded_json(clients)),
        )
        for (
            step_start, kind, quota, level, entity, count, waited_ms, delay_ms_max, limit_per_s, brokers, clients,
        ) in rows
    ]  # fmt: skip
    return result, rows[-1][0] if is_cut else None


def _decoded_json(value: Any) -> Any:
    """Decodes jsonb, which Django returns as text from raw queries."""
    return json.loads(value) if isinstance(value, str) else value
