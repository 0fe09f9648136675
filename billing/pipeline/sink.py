"""PostgreSQL side of the pipeline: offsets and counters in; one transaction with rows, counters and offsets out.

The offsets live in the same transaction as the rows they account for, so a run that dies at any point leaves either all
of its work or none, and nothing outside this database has to be kept for the next run to continue exactly there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg

from billing.lake.files import SCHEMA_VERSION, Written
from billing.pipeline import schema
from billing.pipeline.doubts import Incarnation, Problem
from brokers.contract.usage import COUNTED, COUNTER_KEY, DIRECTIONS, USAGE_TOPIC

# One pipeline per cluster at a time; the second key of the pair is a hash of the cluster id.
ADVISORY_LOCK_CLASS = 0x5045_4E53


# So many incarnations of a cluster's brokers are known to a run: the latest.
INCARNATIONS_MAX = 2_000


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
        key = (ADVISORY_LOCK_CLASS, cluster_id)
        row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", key).fetchone()
        if row is None or not row[0]:
            raise PipelineBusy(cluster_id)
        try:
            yield connection
        finally:
            # The server notices a closed connection when it gets round to it, and the next run comes at once. With one
            # that is lost the lock is, too.
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", key)


def stored_offsets(connection: psycopg.Connection[Any], cluster_id: str) -> dict[int, int]:
    """Next offset to read, per partition; a partition never read is absent."""
    rows = connection.execute(
        "SELECT partition, next_offset FROM billing_usageoffset WHERE cluster_id = %s AND topic = %s",
        (cluster_id, USAGE_TOPIC),
    )
    return dict(rows.fetchall())


def last_looks(connection: psycopg.Connection[Any], cluster_id: str) -> dict[int, datetime]:
    """When each partition was last seen to hold nothing further; one that never was is absent."""
    rows = connection.execute(
        "SELECT partition, updated_at FROM billing_usageoffset"
        " WHERE cluster_id = %s AND topic = %s AND updated_at > 'epoch'",
        (cluster_id, USAGE_TOPIC),
    )
    return dict(rows.fetchall())


def stored_incarnations(connection: psycopg.Connection[Any], cluster_id: str) -> list[Incarnation]:
    """The latest ones of the cluster's brokers."""
    rows = connection.execute(
        "SELECT broker_id, broker_epoch, sequence, at_ms, is_refused FROM billing_usageincarnation"
        " WHERE cluster_id = %s ORDER BY at_ms DESC LIMIT %s",
        (cluster_id, INCARNATIONS_MAX),
    )
    return [Incarnation(*row) for row in rows.fetchall()]


def stored_counters(
    connection: psycopg.Connection[Any], cluster_id: str, incarnations: Iterable[tuple[int, int]]
) -> list[tuple[Any, ...]]:
    """Counters of the given (broker id, broker epoch) pairs as rows of `schema.COUNTER`."""
    pairs = sorted(incarnations)
    if not pairs:
        return []
    rows = connection.execute(
        f"SELECT {_quoted(schema.COUNTER_NAMES)} FROM billing_usagecounter WHERE cluster_id = %s"  # noqa: S608  (column names are constants)
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
    lake_files: Sequence[Written] = (),
    problems: Sequence[Problem] = (),
    incarnations: Sequence[Incarnation] = (),
    before_commit: Any = None,
) -> None:
    """Writes the minute rows, the counters and the offsets `stop` in one transaction.

    `minutes` are rows of `schema.MINUTE_NAMES`, `lake_files` are there. `before_commit` is called with everything
    written and nothing committed (fault tests stop the process there).

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
        add_lake_files(cursor, lake_files)
        _add_problems(cursor, cluster_id, problems)
        _put_incarnations(cursor, cluster_id, incarnations)
        cursor.executemany(
            "INSERT INTO billing_usageoffset (cluster_id, topic, partition, next_offset, updated_at)"
            " VALUES (%s, %s, %s, %s, 'epoch') ON CONFLICT (cluster_id, topic, partition)"
            " DO UPDATE SET next_offset = excluded.next_offset",
            [(cluster_id, USAGE_TOPIC, partition, offset) for partition, offset in stop.items()],
        )
        if before_commit is not None:
            before_commit()


def move_offsets(connection: psycopg.Connection[Any], cluster_id: str, offsets: Mapping[int, int]) -> None:
    """The next run begins at these, by partition. What it reads may be older than the last look at it."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE billing_usageoffset SET next_offset = %s, updated_at = 'epoch'"
            " WHERE cluster_id = %s AND topic = %s AND partition = %s",
            [(offset, cluster_id, USAGE_TOPIC, partition) for partition, offset in offsets.items()],
        )


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
    # In the table the minute is a point in time.
    key = tuple("minute" if name == "minute_ms" else name for name in schema.MINUTE_KEY)
    at = key.index("minute")
    with _copied_to(cursor, "billing_usageminute", "minute_in", (*key, *COUNTED)) as copy:
        for row in rows:
            copy.write_row((*row[:at], datetime.fromtimestamp(row[at] / 1000, UTC), *row[at + 1 :]))
    sums = _added_to("billing_usageminute")
    cursor.execute(
        f"INSERT INTO billing_usageminute ({_quoted((*key, *COUNTED))}) SELECT * FROM minute_in"  # noqa: S608
        f" WHERE direction = ANY(%s) ON CONFLICT ({_quoted(key)}) DO UPDATE SET {sums}",
        [list(DIRECTIONS)],
    )
    days = ["(minute AT TIME ZONE 'UTC')::date" if name == "minute" else f'"{name}"' for name in key]
    names = _quoted("day" if name == "minute" else name for name in key)
    sums = _added_to("billing_usageday")
    cursor.execute(
        f"INSERT INTO billing_usageday ({names}, {_quoted(COUNTED)})"  # noqa: S608
        f" SELECT {', '.join(days)}, {_SUMS} FROM minute_in WHERE direction = ANY(%s)"
        f" GROUP BY {', '.join(days)} ON CONFLICT ({names}) DO UPDATE SET {sums}",
        [list(DIRECTIONS)],
    )
    sums = _added_to("billing_usagehour")
    cursor.execute(
        f"INSERT INTO billing_usagehour (instance_id, hour, direction, {_quoted(COUNTED)})"  # noqa: S608
        " SELECT instance_id, date_trunc('hour', minute, 'UTC'), direction,"
        f" {_SUMS} FROM minute_in"
        f" GROUP BY 1, 2, 3 ON CONFLICT (instance_id, hour, direction) DO UPDATE SET {sums}"
    )


def _capped(number: str) -> str:
    """A sum of SQL type numeric as a bigint: what brokers say, however large, stops nobody's bill."""
    return f"least({number}, {2**63 - 1})::bigint"


def _added_to(table: str) -> str:
    sums = {name: _capped(f"{table}.{name}::numeric + excluded.{name}") for name in COUNTED}
    return ", ".join(f"{name} = {capped}" for name, capped in sums.items())


_SUMS = ", ".join(_capped(f"sum({name})") for name in COUNTED)


def _put_counters(cursor: psycopg.Cursor[Any], cluster_id: str, rows: Iterable[tuple[Any, ...]]) -> None:
    names = ("cluster_id", *schema.COUNTER_NAMES)
    with _copied_to(cursor, "billing_usagecounter", "counter_in", names) as copy:
        for row in rows:
            copy.write_row((cluster_id, *row))
    # What is said again under a sequence counts as far as it is larger.
    is_newer = "excluded.sequence > billing_usagecounter.sequence"
    newest = "sequence = excluded.sequence, " + ", ".join(
        f"{name} = CASE WHEN {is_newer} THEN excluded.{name}"
        f" ELSE greatest(billing_usagecounter.{name}, excluded.{name}) END"
        for name in COUNTED
    )
    cursor.execute(
        f"INSERT INTO billing_usagecounter ({_quoted(names)}) SELECT * FROM counter_in"  # noqa: S608
        f" ON CONFLICT ({_quoted(('cluster_id', *COUNTER_KEY))}) DO UPDATE SET {newest}"
        " WHERE excluded.sequence >= billing_usagecounter.sequence"
    )


def _add_problems(cursor: psycopg.Cursor[Any], cluster_id: str, problems: Sequence[Problem]) -> None:
    """Added to those of the kind that nobody looked after yet."""
    cursor.executemany(
        "INSERT INTO billing_usageproblem (cluster_id, kind, partition, broker_id, records, last_offset, detail,"
        " first_at, last_at) VALUES (%s, %s, %s, %s, %s, %s, %s, now(), now())"
        " ON CONFLICT (cluster_id, kind, partition, broker_id) WHERE handled_at IS NULL DO UPDATE SET"
        " records = billing_usageproblem.records + excluded.records, last_offset = excluded.last_offset,"
        " detail = excluded.detail, last_at = excluded.last_at",
        [
            (cluster_id, each.kind, each.partition, each.broker_id, each.records, each.last_offset, each.detail)
            for each in problems
        ],
    )


def _put_incarnations(cursor: psycopg.Cursor[Any], cluster_id: str, incarnations: Sequence[Incarnation]) -> None:
    old = "billing_usageincarnation"
    cursor.executemany(
        f"INSERT INTO {old} (cluster_id, broker_id, broker_epoch, sequence, at_ms, is_refused)"  # noqa: S608
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (cluster_id, broker_id, broker_epoch) DO UPDATE SET"
        f" sequence = greatest({old}.sequence, excluded.sequence), at_ms = greatest({old}.at_ms, excluded.at_ms),"
        f" is_refused = {old}.is_refused OR excluded.is_refused",
        [
            (cluster_id, each.broker_id, each.broker_epoch, each.sequence, each.at_ms, each.is_refused)
            for each in incarnations
        ],
    )


def add_lake_files(cursor: psycopg.Cursor[Any], written: Sequence[Written]) -> None:
    """From the end of the transaction on they count."""
    cursor.executemany(
        "INSERT INTO billing_lakefile (path, cluster_id, day, rows, added_bytes, schema_version, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, now())",
        [(each.path, each.cluster_id, each.day, each.rows, each.added_bytes, SCHEMA_VERSION) for each in written],
    )


@contextmanager
def _copied_to(cursor: psycopg.Cursor[Any], table: str, beside: str, names: Sequence[str]) -> Iterator[psycopg.Copy]:
    """Rows into a table `beside` this one, of these columns, that ends with the transaction."""
    cursor.execute(
        f"CREATE TEMP TABLE {beside} ON COMMIT DROP AS SELECT {_quoted(names)} FROM {table} WITH NO DATA"  # noqa: S608
    )
    with cursor.copy(f"COPY {beside} FROM STDIN") as copy:
        yield copy


def _quoted(names: Iterable[str]) -> str:
    """Names of columns in a statement, all of them constants; `user` is a word of SQL."""
    return ", ".join(f'"{name}"' for name in names)
