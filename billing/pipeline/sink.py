"""PostgreSQL side of the pipeline: offsets and counters in; one transaction with rows, counters and offsets out.

The offsets live in the same transaction as the rows they account for, so a run that dies at any point leaves either all
of its work or none, and nothing outside this database has to be kept for the next run to continue exactly there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg

from billing.pipeline.transforms import COUNTER_KEY
from brokers.contract.usage import USAGE_TOPIC

# One pipeline per cluster at a time; the second key of the pair is a hash of the cluster id.
ADVISORY_LOCK_CLASS = 0x5045_4E53


class PipelineBusy(Exception):
    """Another run holds the cluster's lock; nothing to do here."""


class OffsetsMoved(Exception):
    """The stored offsets are not those the run was planned from: somebody else advanced them. Nothing was written."""


@contextmanager
def exclusive(dsn: str, cluster_id: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that holds the cluster's pipeline lock until it closes (also when the process is killed).

    Raises:
        PipelineBusy: another run holds it.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", (ADVISORY_LOCK_CLASS, cluster_id)
        ).fetchone()
        if row is None or not row[0]:
            raise PipelineBusy(cluster_id)
        yield connection


def stored_offsets(connection: psycopg.Connection[Any], cluster_id: str) -> dict[int, int]:
    """Next offset to read, per partition; a partition never read is absent."""
    rows = connection.execute(
        "SELECT partition, next_offset FROM billing_usageoffset WHERE cluster_id = %s AND topic = %s",
        (cluster_id, USAGE_TOPIC),
    )
    return dict(rows.fetchall())


def stored_counters(
    connection: psycopg.Connection[Any], cluster_id: str, incarnations: Iterable[tuple[int, int]]
) -> list[tuple[Any, ...]]:
    """Counters of the given (broker id, broker epoch) pairs as rows of `transforms.COUNTER_SCHEMA`."""
    pairs = sorted(incarnations)
    if not pairs:
        return []
    columns = ", ".join(f'"{name}"' for name in (*COUNTER_KEY, "sequence", "bytes", "requests"))
    rows = connection.execute(
        f"SELECT {columns} FROM billing_usagecounter WHERE cluster_id = %s"  # noqa: S608  (column names are constants)
        " AND (broker_id, broker_epoch) IN (SELECT * FROM unnest(%s::int[], %s::bigint[]))",
        (cluster_id, [broker for broker, _ in pairs], [epoch for _, epoch in pairs]),
    )
    return rows.fetchall()


def commit(
    connection: psycopg.Connection[Any],
    *,
    cluster_id: str,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    minutes: Iterable[tuple[Any, ...]],
    counters: Iterable[tuple[Any, ...]],
    before_commit: Any = None,
) -> None:
    """Writes the minute rows, the counters and the offsets `stop` in one transaction.

    `minutes` are rows of `transforms.MINUTE_KEY` + bytes + requests; `before_commit` is called with everything written
    and nothing committed (fault tests stop the process there).

    Raises:
        OffsetsMoved: a stored offset is not the one in `start`.
    """
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT partition, next_offset FROM billing_usageoffset WHERE cluster_id = %s AND topic = %s FOR UPDATE",
            (cluster_id, USAGE_TOPIC),
        )
        now_stored = dict(cursor.fetchall())
        for partition, planned in start.items():
            if now_stored.get(partition, planned) != planned:
                raise OffsetsMoved(f"{USAGE_TOPIC}-{partition}: stored {now_stored[partition]}, planned {planned}")
        _add_minutes(cursor, minutes)
        _put_counters(cursor, cluster_id, counters)
        cursor.executemany(
            "INSERT INTO billing_usageoffset (cluster_id, topic, partition, next_offset, updated_at)"
            " VALUES (%s, %s, %s, %s, 'epoch') ON CONFLICT (cluster_id, topic, partition)"
            " DO UPDATE SET next_offset = excluded.next_offset",
            [(cluster_id, USAGE_TOPIC, partition, offset) for partition, offset in stop.items()],
        )
        if before_commit is not None:
            before_commit()


def note_complete(
    connection: psycopg.Connection[Any], cluster_id: str, ends: Mapping[int, int], looked_at: datetime
) -> None:
    """These partitions ended at these offsets when they were looked at, and all of that is in the rows."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO billing_usageoffset (cluster_id, topic, partition, next_offset, updated_at)"
            " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (cluster_id, topic, partition)"
            " DO UPDATE SET updated_at = greatest(billing_usageoffset.updated_at, excluded.updated_at)"
            " WHERE billing_usageoffset.next_offset >= excluded.next_offset",
            [(cluster_id, USAGE_TOPIC, partition, offset, looked_at) for partition, offset in ends.items()],
        )


def _add_minutes(cursor: psycopg.Cursor[Any], rows: Iterable[tuple[Any, ...]]) -> None:
    cursor.execute(
        "CREATE TEMP TABLE minute_in (instance_id text, minute timestamptz, topic text, username text, client_id text,"
        " direction text, bytes bigint, requests bigint) ON COMMIT DROP"
    )
    with cursor.copy("COPY minute_in FROM STDIN") as copy:
        for instance_id, minute_ms, *rest in rows:
            copy.write_row((instance_id, datetime.fromtimestamp(minute_ms / 1000, UTC), *rest))
    cursor.execute(
        'INSERT INTO billing_usageminute (instance_id, minute, topic, "user", client_id, direction, bytes, requests)'
        " SELECT * FROM minute_in"
        ' ON CONFLICT (instance_id, minute, topic, "user", client_id, direction) DO UPDATE SET'
        " bytes = billing_usageminute.bytes + excluded.bytes,"
        " requests = billing_usageminute.requests + excluded.requests"
    )


def _put_counters(cursor: psycopg.Cursor[Any], cluster_id: str, rows: Iterable[tuple[Any, ...]]) -> None:
    cursor.execute(
        "CREATE TEMP TABLE counter_in (cluster_id text, broker_id int, broker_epoch bigint, instance_id text,"
        " topic text, username text, client_id text, direction text, sequence bigint, bytes bigint, requests bigint)"
        " ON COMMIT DROP"
    )
    with cursor.copy("COPY counter_in FROM STDIN") as copy:
        for row in rows:
            copy.write_row((cluster_id, *row))
    cursor.execute(
        "INSERT INTO billing_usagecounter (cluster_id, broker_id, broker_epoch, instance_id, topic,"
        ' "user", client_id, direction, sequence, bytes, requests) SELECT * FROM counter_in'
        ' ON CONFLICT (cluster_id, broker_id, broker_epoch, instance_id, topic, "user", client_id, direction)'
        " DO UPDATE SET sequence = excluded.sequence, bytes = excluded.bytes, requests = excluded.requests"
        " WHERE excluded.sequence > billing_usagecounter.sequence"
    )
