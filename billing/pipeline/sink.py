"""PostgreSQL side of the pipeline: offsets and counters in; one transaction with rows, counters and offsets out.

The offsets live in the same transaction as the rows they account for, so a run that dies at any point leaves either all
of its work or none, and nothing outside this database has to be kept for the next run to continue exactly there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from billing.lake.files import SCHEMA_VERSION, Written
from billing.pipeline import schema
from billing.pipeline.copying import as_text
from billing.pipeline.doubts import Incarnation, Problem
from brokers.contract.usage import COUNTED, COUNTER_KEY, DIRECTIONS, USAGE_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

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
    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
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


def stored_counters(connection: psycopg.Connection[Any], cluster_id: str, keys: pa.Table) -> pa.Table:
    """Returns the stored values of the given counters, with the columns of `differences.LAST`: row n is of row n of
    `keys`, and null where nothing is stored.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    from billing.pipeline.differences import LAST

    if not keys.num_rows:
        return LAST.empty_table()
    numbers = pa.array(range(keys.num_rows), pa.int64())
    statement = (
        f"COPY (SELECT key_in.number, {_quoted(LAST.names)} FROM key_in JOIN billing_usagecounter"  # noqa: S608  (column names are constants)
        f" USING ({_quoted(COUNTER_KEY)}) WHERE cluster_id = %s) TO STDOUT (FORMAT csv)"
    )
    with connection.transaction(), connection.cursor() as cursor:
        _stage(cursor, "key_in", "billing_usagecounter", keys.append_column("number", numbers), "number")
        # By the index, one counter after the other: few of a cluster's counters change in one run.
        cursor.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
        with cursor.copy(statement, (cluster_id,)) as copy:
            lines = b"".join(copy)
    if not lines:
        return pa.Table.from_arrays([pa.nulls(keys.num_rows, field.type) for field in LAST], schema=LAST)
    names = ["number", *LAST.names]
    found = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(use_threads=False, column_names=names),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64())),
    ).combine_chunks()
    place = pc.index_in(numbers, value_set=found.column("number").combine_chunks())
    return found.select(LAST.names).take(place).combine_chunks()


def commit(
    connection: psycopg.Connection[Any],
    *,
    cluster_id: str,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    minutes: pa.Table,
    counters: pa.Table,
    lake_files: Sequence[Written] = (),
    problems: Sequence[Problem] = (),
    incarnations: Sequence[Incarnation] = (),
    before_commit: Any = None,
) -> None:
    """Writes the minute rows, the counters and the offsets `stop` in one transaction.

    `minutes` have the columns of `schema.MINUTE_NAMES`, `counters` those of `schema.COUNTER`; `lake_files` are there.
    `before_commit` is called with everything written and nothing committed (fault tests stop the process there).

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


def _add_minutes(cursor: psycopg.Cursor[Any], minutes: pa.Table) -> None:
    _stage(cursor, "minute_in", "billing_usageminute", minutes, "minute_ms")
    # In the tables the minute is a point in time.
    expressions = {name: _MINUTE if name == "minute_ms" else f'"{name}"' for name in schema.MINUTE_KEY}
    key = _quoted("minute" if name == "minute_ms" else name for name in expressions)
    sums = _added_to("billing_usageminute")
    cursor.execute(
        f"INSERT INTO billing_usageminute ({key}, {_quoted(COUNTED)})"  # noqa: S608
        f" SELECT {', '.join(expressions.values())}, {_quoted(COUNTED)} FROM minute_in"
        f" WHERE direction = ANY(%s) ON CONFLICT ({key}) DO UPDATE SET {sums}",
        [list(DIRECTIONS)],
    )
    days = ", ".join((expressions | {"minute_ms": f"({_MINUTE} AT TIME ZONE 'UTC')::date"}).values())
    names = _quoted("day" if name == "minute_ms" else name for name in expressions)
    sums = _added_to("billing_usageday")
    cursor.execute(
        f"INSERT INTO billing_usageday ({names}, {_quoted(COUNTED)})"  # noqa: S608
        f" SELECT {days}, {_SUMS} FROM minute_in WHERE direction = ANY(%s)"
        f" GROUP BY {days} ON CONFLICT ({names}) DO UPDATE SET {sums}",
        [list(DIRECTIONS)],
    )
    sums = _added_to("billing_usagehour")
    cursor.execute(
        f"INSERT INTO billing_usagehour (instance_id, hour, direction, {_quoted(COUNTED)})"  # noqa: S608
        f" SELECT instance_id, date_trunc('hour', {_MINUTE}, 'UTC'), direction,"
        f" {_SUMS} FROM minute_in"
        f" GROUP BY 1, 2, 3 ON CONFLICT (instance_id, hour, direction) DO UPDATE SET {sums}"
    )


def _capped(number: str) -> str:
    """A sum of SQL type numeric as a bigint: what brokers say, however large, stops nobody's bill."""
    return f"least({number}, {2**63 - 1})::bigint"


def _added_to(table: str) -> str:
    sums = {name: _capped(f"{table}.{name}::numeric + excluded.{name}") for name in COUNTED}
    return ", ".join(f"{name} = {capped}" for name, capped in sums.items())


_MINUTE = "to_timestamp(minute_ms / 1000)"
_SUMS = ", ".join(_capped(f"sum({name})") for name in COUNTED)


def _put_counters(cursor: psycopg.Cursor[Any], cluster_id: str, counters: pa.Table) -> None:
    names = _quoted(schema.COUNTER_NAMES)
    _stage(cursor, "counter_in", "billing_usagecounter", counters)
    # What is said again under a sequence counts as far as it is larger.
    is_newer = "excluded.sequence > billing_usagecounter.sequence"
    newest = "sequence = excluded.sequence, " + ", ".join(
        f"{name} = CASE WHEN {is_newer} THEN excluded.{name}"
        f" ELSE greatest(billing_usagecounter.{name}, excluded.{name}) END"
        for name in COUNTED
    )
    cursor.execute(
        f"INSERT INTO billing_usagecounter (cluster_id, {names}) SELECT %s, {names} FROM counter_in"  # noqa: S608
        f" ON CONFLICT ({_quoted(('cluster_id', *COUNTER_KEY))}) DO UPDATE SET {newest}"
        " WHERE excluded.sequence >= billing_usagecounter.sequence",
        [cluster_id],
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


def _stage(cursor: psycopg.Cursor[Any], name: str, table: str, columns: pa.Table, number: str | None = None) -> None:
    """Copies the columns into a table of this name that ends with the transaction. They are as in `table`, but for
    `number`, which `table` does not have.
    """
    wanted = [f"0::bigint AS {each}" if each == number else f'"{each}"' for each in columns.column_names]
    cursor.execute(
        f"CREATE TEMP TABLE {name} ON COMMIT DROP AS SELECT {', '.join(wanted)} FROM {table} WITH NO DATA"  # noqa: S608
    )
    with cursor.copy(f"COPY {name} FROM STDIN") as copy:
        copy.write(as_text(columns))


def _quoted(names: Iterable[str]) -> str:
    """Names of columns in a statement, all of them constants; `user` is a word of SQL."""
    return ", ".join(f'"{name}"' for name in names)
