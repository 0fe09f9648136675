"""PostgreSQL side of the pipeline: reads offsets and counters, and writes rows, counters and offsets in one
transaction.

The offsets are in the same transaction as the rows they account for, so that a run that dies leaves either all of its
work or none, and the next run needs no other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from billing.lake.files import SCHEMA_VERSION, WrittenLakeFile
from billing.pipeline import schema
from billing.pipeline.copying import as_text
from billing.pipeline.doubts import Incarnation, Problem
from brokers.contract.usage import COUNTED, COUNTER_KEY, DIRECTIONS, USAGE_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

# One pipeline per cluster at a time; the second key of the pair is a hash of the cluster id.
ADVISORY_LOCK_CLASS = 0x5045_4E53


# Maximum number of incarnations of a cluster's brokers known to a run, the latest ones.
INCARNATIONS_MAX = 2_000


class PipelineBusy(Exception):
    """Another run holds the cluster's lock."""


class OffsetsMoved(Exception):
    """The stored offsets are not those the run was planned from: another run advanced them. Nothing was written."""


@contextmanager
def exclusive(dsn: str, cluster_id: str) -> Iterator[psycopg.Connection[Any]]:
    """Opens a connection that holds the cluster's pipeline lock until it closes, even if the process is killed.

    Raises:
        PipelineBusy: another run holds the lock.
    """
    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
        key = (ADVISORY_LOCK_CLASS, cluster_id)
        row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", key).fetchone()
        if row is None or not row[0]:
            raise PipelineBusy(cluster_id)
        try:
            yield connection
        finally:
            # The server notices a closed connection only after some time, and the next run may follow at once. A lost
            # connection releases the lock as well.
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", key)


def stored_offsets(connection: psycopg.Connection[Any], cluster_id: str) -> dict[int, int]:
    """Returns the next offset to read by partition; partitions that were never read are absent."""
    rows = connection.execute(
        "SELECT partition, next_offset FROM billing_usageoffset WHERE cluster_id = %s AND topic = %s",
        (cluster_id, USAGE_TOPIC),
    )
    return dict(rows.fetchall())


def last_read_times(connection: psycopg.Connection[Any], cluster_id: str) -> dict[int, datetime]:
    """Returns the time when each partition was last read to its end; partitions that never were are absent."""
    rows = connection.execute(
        "SELECT partition, updated_at FROM billing_usageoffset"
        " WHERE cluster_id = %s AND topic = %s AND updated_at > 'epoch'",
        (cluster_id, USAGE_TOPIC),
    )
    return dict(rows.fetchall())


def stored_incarnations(connection: psycopg.Connection[Any], cluster_id: str) -> list[Incarnation]:
    """Returns the latest incarnations of the cluster's brokers."""
    rows = connection.execute(
        "SELECT broker_id, broker_epoch, sequence, at_ms, is_refused FROM billing_usageincarnation"
        " WHERE cluster_id = %s ORDER BY at_ms DESC LIMIT %s",
        (cluster_id, INCARNATIONS_MAX),
    )
    return [Incarnation(*row) for row in rows.fetchall()]


def stored_counters(connection: psycopg.Connection[Any], cluster_id: str, keys: pa.Table) -> pa.Table:
    """Returns the stored values of the given counters, with the columns of `differences.LAST`.

    Row n belongs to row n of `keys`, and is null if nothing is stored.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    from billing.pipeline.differences import LAST

    if not keys.num_rows:
        return LAST.empty_table()
    numbers = pa.array(range(keys.num_rows), pa.int64())
    same = " AND ".join(f'stored."{name}" = key_in."{name}"' for name in COUNTER_KEY)
    statement = (
        # OFFSET 0 enforces one index lookup per key. Without statistics of the temporary table, the planner might
        # compare each key with each counter.
        f"COPY (SELECT key_in.number, found.* FROM key_in, LATERAL (SELECT {_quoted(LAST.names)}"  # noqa: S608  (column names are constants)
        f" FROM billing_usagecounter AS stored WHERE cluster_id = %s AND {same} OFFSET 0) AS found)"
        " TO STDOUT (FORMAT csv)"
    )
    with connection.transaction(), connection.cursor() as cursor:
        _stage(cursor, "key_in", "billing_usagecounter", keys.append_column("number", numbers), "number")
        with cursor.copy(statement, (cluster_id,)) as copy:
            lines = b"".join(copy)
    if not lines:
        return pa.Table.from_arrays([pa.nulls(keys.num_rows, field.type) for field in LAST], schema=LAST)
    names = ["number", *LAST.names]
    values = csv.read_csv(
        pa.BufferReader(lines),
        read_options=csv.ReadOptions(use_threads=False, column_names=names),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64())),
    ).combine_chunks()
    indexes = pc.index_in(numbers, value_set=values.column("number").combine_chunks())
    return values.select(LAST.names).take(indexes).combine_chunks()


def commit(
    connection: psycopg.Connection[Any],
    *,
    cluster_id: str,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    minutes: pa.Table,
    counters: pa.Table,
    lake_files: Sequence[WrittenLakeFile] = (),
    problems: Sequence[Problem] = (),
    incarnations: Sequence[Incarnation] = (),
    before_commit: Any = None,
) -> None:
    """Writes the minute rows, the counters and the offsets `stop` in one transaction.

    `minutes` has the columns of `schema.MINUTE_NAMES`, `counters` those of `schema.COUNTER`; `lake_files` exist
    already. `before_commit` is called after everything was written and before the commit (fault tests stop the process
    there).

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
    """Sets the offsets at which the next run begins, and resets the time of the last read to the end.

    The next records may be older than that time, which bounds the times of records.
    """
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE billing_usageoffset SET next_offset = %s, updated_at = 'epoch'"
            " WHERE cluster_id = %s AND topic = %s AND partition = %s",
            [(offset, cluster_id, USAGE_TOPIC, partition) for partition, offset in offsets.items()],
        )


def record_read_times(
    connection: psycopg.Connection[Any], cluster_id: str, ends: Mapping[int, int], read_at: datetime
) -> None:
    """Stores `read_at` as the time of the last read to the end, for partitions that are read up to `ends`."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO billing_usageoffset (cluster_id, topic, partition, next_offset, updated_at)"
            " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (cluster_id, topic, partition)"
            " DO UPDATE SET updated_at = greatest(billing_usageoffset.updated_at, excluded.updated_at)"
            " WHERE billing_usageoffset.next_offset >= excluded.next_offset",
            [(cluster_id, USAGE_TOPIC, partition, offset, read_at) for partition, offset in ends.items()],
        )


def _add_minutes(cursor: psycopg.Cursor[Any], minutes: pa.Table) -> None:
    _stage(cursor, "minute_in", "billing_usageminute", minutes, "minute_ms")
    # The tables store the minute as a timestamp.
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
    """Caps a sum of SQL type numeric to a bigint, so that absurd reports of brokers cannot block bills."""
    return f"least({number}, {2**63 - 1})::bigint"


def _added_to(table: str) -> str:
    """Returns the SET clause of an upsert that adds the counts to those of the existing row."""
    sums = {name: _capped(f"{table}.{name}::numeric + excluded.{name}") for name in COUNTED}
    return ", ".join(f"{name} = {capped}" for name, capped in sums.items())


_MINUTE = "to_timestamp(minute_ms / 1000)"
_SUMS = ", ".join(_capped(f"sum({name})") for name in COUNTED)


def _put_counters(cursor: psycopg.Cursor[Any], cluster_id: str, counters: pa.Table) -> None:
    names = _quoted(schema.COUNTER_NAMES)
    _stage(cursor, "counter_in", "billing_usagecounter", counters)
    # A repeated report with the same sequence counts as far as it is larger.
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
    """Adds records to open problems of the same kind, or creates them."""
    cursor.executemany(
        "INSERT INTO billing_usageproblem (cluster_id, kind, partition, broker_id, records, last_offset, detail,"
        " first_at, last_at) VALUES (%s, %s, %s, %s, %s, %s, %s, now(), now())"
        " ON CONFLICT (cluster_id, kind, partition, broker_id) WHERE handled_at IS NULL DO UPDATE SET"
        " records = billing_usageproblem.records + excluded.records, last_offset = excluded.last_offset,"
        " detail = excluded.detail, last_at = excluded.last_at",
        [
            (
                cluster_id,
                problem.kind,
                problem.partition,
                problem.broker_id,
                problem.records,
                problem.last_offset,
                problem.detail,
            )
            for problem in problems
        ],
    )


def _put_incarnations(cursor: psycopg.Cursor[Any], cluster_id: str, incarnations: Sequence[Incarnation]) -> None:
    table = "billing_usageincarnation"
    cursor.executemany(
        f"INSERT INTO {table} (cluster_id, broker_id, broker_epoch, sequence, at_ms, is_refused)"  # noqa: S608
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (cluster_id, broker_id, broker_epoch) DO UPDATE SET"
        f" sequence = greatest({table}.sequence, excluded.sequence), at_ms = greatest({table}.at_ms, excluded.at_ms),"
        f" is_refused = {table}.is_refused OR excluded.is_refused",
        [
            (
                cluster_id,
                incarnation.broker_id,
                incarnation.broker_epoch,
                incarnation.sequence,
                incarnation.at_ms,
                incarnation.is_refused,
            )
            for incarnation in incarnations
        ],
    )


def add_lake_files(cursor: psycopg.Cursor[Any], written: Sequence[WrittenLakeFile]) -> None:
    """Inserts rows of lake files; they become part of the lake when the transaction commits."""
    cursor.executemany(
        "INSERT INTO billing_lakefile (path, cluster_id, day, rows, added_bytes, schema_version, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, now())",
        [(file.path, file.cluster_id, file.day, file.rows, file.added_bytes, SCHEMA_VERSION) for file in written],
    )


def _stage(cursor: psycopg.Cursor[Any], name: str, table: str, columns: pa.Table, number: str | None = None) -> None:
    """Copies the columns into a temporary table `name`, which is dropped at the end of the transaction.

    Their types are those of the columns of `table`; the column `number` is a bigint.
    """
    select_columns = [
        f"0::bigint AS {column}" if column == number else f'"{column}"' for column in columns.column_names
    ]
    cursor.execute(
        f"CREATE TEMP TABLE {name} ON COMMIT DROP AS SELECT {', '.join(select_columns)} FROM {table} WITH NO DATA"  # noqa: S608
    )
    with cursor.copy(f"COPY {name} FROM STDIN") as copy:
        copy.write(as_text(columns))


def _quoted(names: Iterable[str]) -> str:
    """Quotes column names, which are all constants, because `user` is an SQL keyword."""
    return ", ".join(f'"{name}"' for name in names)
