"""Access to a tenant's database: checks its tables, reads the stored progress, and loads each batch in one transaction.

No Django setting is read here, because Spark workers do not have them. The server may be hostile: time and answers are
limited by the relay, and values are checked.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from archives import limits
from archives.database_address import LOADS_TABLE, VERIFY_FULL, Database, DatabaseAddress
from archives.database_rows import (
    COLUMNS,
    COPY_HEADER,
    COPY_TRAILER,
    LOADS_COLUMNS,
    LOADS_PRIMARY_KEY,
    PRIMARY_KEY,
    REQUIRED,
)
from archives.relay import Relay

APPLICATION: Final = "penstock-archive"
COPY_CHUNK_BYTES: Final = 1_048_576
REASON_CHARS_MAX: Final = 300
# Maximum of stored offsets and counts; the sum of two such numbers fits into a bigint.
OFFSET_MAX: Final = 2**62
MS_PER_S: Final = 1_000
# Authentication methods of libpq. Only the first does not reveal the password to the server, so it is required where
# the server's certificate is not verified.
_SAFE_METHODS: Final = "scram-sha-256"
_ALL_METHODS: Final = "scram-sha-256,md5,password,none"
_ORDINARY_TABLES: Final = ("r", "p")
_UNLOGGED: Final = "u"


class DatabaseFailed(Exception):
    """The database refuses or does not answer. The message is shown to the tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """Progress of one partition, stored in the tenant's database: all offsets below `next_offset` are processed.

    `rows` counts loaded records, `skipped` unreadable records, and `missed` offsets that were deleted before.
    """

    next_offset: int
    rows: int = 0
    skipped: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Records of one partition to be loaded in one transaction.

    `rows` has `count` rows in PostgreSQL's binary format of COPY, without header and trailer. The batch covers the
    offsets `[start, next_offset)`.
    """

    topic_id: str
    partition: int
    start: int
    next_offset: int
    rows: bytearray
    count: int
    skipped: int = 0
    missed: int = 0


@contextmanager
def open_transaction(database: Database, within_s: float) -> Iterator[psycopg.Connection[Any]]:
    """Context manager of a transaction in a new connection, which is closed after at most `within_s` seconds.

    Raises:
        DatabaseFailed: the server refuses, fails, or does not answer in time.
    """
    address = database.address
    relay = Relay(
        address.host, address.port, refused=database.refused, private=database.private, within_s=within_s,
        answer_bytes_max=limits.ANSWER_BYTES_MAX,
    )  # fmt: skip
    try:
        with relay:
            connection = psycopg.connect(**_parameters(database, relay.port, within_s))
            try:
                with connection.transaction():
                    _set_timeouts(connection, within_s)
                    yield connection
            finally:
                connection.close()
    except psycopg.Error as failure:
        raise DatabaseFailed(_failure_message(failure, relay, address, within_s)) from None
    except (OSError, UnicodeError):
        raise DatabaseFailed(
            f"No public address of the server answers at {address.authority}. Check host and port, and whether a"
            " firewall lets this service in."
        ) from None


def _parameters(database: Database, port: int, within_s: float) -> dict[str, Any]:
    """Returns libpq's parameters, including those that libpq would otherwise read from files of this machine."""
    address = database.address
    is_verified = address.ssl_mode == VERIFY_FULL
    certificate_settings = {"sslrootcert": database.ca_file or ssl.get_default_verify_paths().cafile or "system"}
    return {
        "host": address.host, "hostaddr": "127.0.0.1", "port": port, "dbname": address.database,
        "user": database.user, "password": database.password, "sslmode": address.ssl_mode,
        "require_auth": _ALL_METHODS if is_verified else _SAFE_METHODS, "connect_timeout": int(within_s),
        "application_name": APPLICATION, "client_encoding": "utf8", "passfile": os.devnull, "sslcertmode": "disable",
        "gssencmode": "disable", "autocommit": True, "prepare_threshold": None,
        **(certificate_settings if is_verified else {}),
    }  # fmt: skip


def _set_timeouts(connection: psycopg.Connection[Any], within_s: float) -> None:
    """Sets the server's timeouts for the transaction, because the server detects a lost client only late."""
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(
            sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(int(within_s * MS_PER_S)))
        )


def _failure_message(failure: psycopg.Error, relay: Relay, address: DatabaseAddress, within_s: float) -> str:
    """Returns a message for the tenant with the failure and its remedy."""
    if relay.is_late or isinstance(failure, errors.QueryCanceled | errors.LockNotAvailable | errors.ConnectionTimeout):
        return f"The database did not finish within {within_s:.0f} s. Look for locks on the table, or a busy server."
    if relay.is_answer_too_long:
        return f"The database answered with more than {limits.ANSWER_BYTES_MAX:,} bytes. Is it PostgreSQL?"
    message = _server_message(failure, relay)
    table = f"{address.schema}.{address.table}"
    if isinstance(failure, errors.InsufficientPrivilege):
        return (
            f"The user may not do that: {message}. It needs SELECT and INSERT on {table}, SELECT, INSERT and UPDATE on"
            f" {address.schema}.{LOADS_TABLE}, or CREATE on the schema {address.schema}."
        )
    if isinstance(failure, errors.UndefinedTable | errors.UndefinedColumn):
        return f"The table {table} was dropped or changed meanwhile: {message}."
    if failure.sqlstate:
        return f"The database refused it: {message} (SQLSTATE {failure.sqlstate})."
    if "certificate" in message:
        return f"{message}. Give the server a certificate for its name, or set sslmode=require in another archive."
    return f"The database does not let the archive in: {message}. Check user, password, database and pg_hba.conf."


def _server_message(failure: psycopg.Error, relay: Relay) -> str:
    """Returns the server's message on one line, without the relay's address and at most `REASON_CHARS_MAX` long."""
    message = failure.diag.message_primary or str(failure).rpartition(f"port {relay.port} failed: ")[2]
    printable = "".join(character if character.isprintable() else " " for character in message)
    return " ".join(printable.split())[:REASON_CHARS_MAX].rstrip(".") or type(failure).__name__


def prepare_tables(
    database: Database, topic: str, topic_id: str, start_offsets: Mapping[int, int], missed_offsets: Mapping[int, int]
) -> dict[int, PartitionProgress]:
    """Creates missing tables and progress rows, and returns the progress of each partition.

    Partitions that were never loaded begin at `start_offsets`, their log start offsets, with `missed_offsets` as the
    count of their missed offsets. Both are by partition.

    Raises:
        DatabaseFailed: the tables do not fit, or the database does not answer.
    """
    address = database.address
    with open_transaction(database, limits.PREPARE_S) as connection:
        _require_tables(connection, address)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (table_name, topic_id, topic, partition, next_offset, rows, skipped_records,"
                " missed_offsets, loaded_at) SELECT %s, %s, %s, number, low, 0, 0, missed, now()"
                " FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS new (number, low, missed)"
                " ON CONFLICT (table_name, topic_id, partition) DO NOTHING"
            ).format(_progress_table(address)),
            (
                address.table,
                topic_id,
                topic,
                list(start_offsets),
                list(start_offsets.values()),
                [missed_offsets.get(partition, 0) for partition in start_offsets],
            ),
        )
        rows = connection.execute(
            sql.SQL(
                "SELECT partition, next_offset, rows, skipped_records, missed_offsets FROM {}"
                " WHERE table_name = %s AND topic_id = %s"
            ).format(_progress_table(address)),
            (address.table, topic_id),
        ).fetchall()
    return {
        partition: PartitionProgress(next_offset=next_offset, rows=row_count, skipped=skipped, missed=missed)
        for partition, next_offset, row_count, skipped, missed in map(_require_valid_progress, rows)
    }


def _require_valid_progress(row: Sequence[Any]) -> Sequence[int]:
    """Returns a progress row unchanged. Raises `DatabaseFailed` if a number in it cannot be an offset or a count."""
    if not all(type(number) is int and 0 <= number <= OFFSET_MAX for number in row):
        raise DatabaseFailed(f"{LOADS_TABLE} has a number that no offset can be. Set it right, or delete its rows.")
    return row


def _require_tables(connection: psycopg.Connection[Any], address: DatabaseAddress) -> None:
    """Creates missing tables. Raises `DatabaseFailed` if existing tables do not fit or contradict each other."""
    schema = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)).fetchone()
    if schema is None:
        raise DatabaseFailed(f"The database has no schema {address.schema}. Create it: CREATE SCHEMA {address.schema};")
    has_loads = _table_exists(connection, address.schema, LOADS_TABLE, LOADS_COLUMNS)
    has_table = _table_exists(connection, address.schema, address.table, COLUMNS)
    loaded_rows = 0
    if has_loads:
        (loaded_rows, progress_rows), *_ = connection.execute(
            sql.SQL("SELECT coalesce(sum(rows), 0)::bigint, count(*) FROM {} WHERE table_name = %s").format(
                _progress_table(address)
            ),
            (address.table,),
        ).fetchall()
        has_loads = bool(progress_rows)
    else:
        _create_table(connection, _progress_table(address), LOADS_COLUMNS, LOADS_COLUMNS, LOADS_PRIMARY_KEY)
    if not has_table and loaded_rows:
        raise DatabaseFailed(
            f"The table {address.schema}.{address.table} is gone, and {LOADS_TABLE} says that it was loaded. Restore"
            f" it; or, to load the topic again, delete the rows of that table_name from {LOADS_TABLE}."
        )
    if not has_table:
        _create_table(connection, _archive_table(address), COLUMNS, REQUIRED, PRIMARY_KEY)
    elif (
        not has_loads
        and connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(_archive_table(address))).fetchone()
    ):
        raise DatabaseFailed(
            f"The table {address.schema}.{address.table} has rows, and {LOADS_TABLE} does not say of which offsets."
            " Empty it, or name another table."
        )


def _table_exists(
    connection: psycopg.Connection[Any], schema: str, table: str, expected_columns: Mapping[str, str]
) -> bool:
    """True if the table exists. Raises `DatabaseFailed` if an existing table cannot store rows of `expected_columns`.

    `expected_columns` has the types of columns by name.
    """
    name = f"{schema}.{table}"
    table_kind = connection.execute(
        "SELECT relkind::text, relpersistence::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s",
        (schema, table),
    ).fetchone()
    if table_kind is None:
        return False
    if table_kind[0] not in _ORDINARY_TABLES or table_kind[1] == _UNLOGGED:
        raise DatabaseFailed(f"{name} is not an ordinary, logged table, whose rows stay. Name another table.")
    columns = connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = ''"
        " FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped",
        (schema, table),
    ).fetchall()
    types = {column: table_kind for column, table_kind, _ in columns}
    for column, type_name in expected_columns.items():
        if types.get(column) != type_name:
            raise DatabaseFailed(
                f'The table {name} does not fit: column "{column}" must be {type_name},'
                f" and is {str(types.get(column, 'missing'))[:REASON_CHARS_MAX]}. Change it, or name another table."
            )
    for column, _, is_required in columns:
        if column not in expected_columns and is_required:
            raise DatabaseFailed(
                f'The table {name} does not fit: column "{str(column)[:REASON_CHARS_MAX]}" needs a value that a record'
                " does not have. Give it a default, or name another table."
            )
    return True


def _create_table(
    connection: psycopg.Connection[Any],
    table: sql.Composable,
    columns: Mapping[str, str],
    required_columns: Sequence[str] | Mapping[str, str],
    primary_key: Sequence[str],
) -> None:
    parts: list[sql.Composable] = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(name), sql.SQL(type_name), sql.SQL(" NOT NULL" if name in required_columns else "")
        )
        for name, type_name in columns.items()
    ]  # fmt: skip
    parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, primary_key))))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts)))


def load_batch(database: Database, batch: RowBatch, at_point: Callable[[str], None]) -> None:
    """Loads a batch and stores the offset after it in one transaction.

    `at_point` is called with the points of `loading.POINTS` from "begun" on.

    Raises:
        DatabaseFailed: neither is stored. If the connection ended during the commit, both may be stored; the next run
            then continues from the offset in the database.
    """
    address = database.address
    key = (address.table, batch.topic_id, batch.partition)
    with open_transaction(database, limits.BATCH_S) as connection:
        at_point("begun")
        stored = connection.execute(
            sql.SQL(
                "SELECT next_offset FROM {} WHERE table_name = %s AND topic_id = %s AND partition = %s FOR UPDATE"
            ).format(_progress_table(address)),
            key,
        ).fetchone()
        if stored is None or stored[0] != batch.start:
            raise DatabaseFailed(
                f"{LOADS_TABLE} was changed while partition {batch.partition} was read. It is tried again."
            )
        if batch.count:
            _copy_rows(connection, address, batch)
        at_point("copied")
        connection.execute(
            sql.SQL(
                "UPDATE {} SET next_offset = %s, rows = rows + %s, skipped_records = skipped_records + %s,"
                " missed_offsets = missed_offsets + %s, loaded_at = now()"
                " WHERE table_name = %s AND topic_id = %s AND partition = %s"
            ).format(_progress_table(address)),
            (batch.next_offset, batch.count, batch.skipped, batch.missed, *key),
        )
        at_point("stored")
    at_point("committed")


def _copy_rows(connection: psycopg.Connection[Any], address: DatabaseAddress, batch: RowBatch) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(_archive_table(address), columns)
    with connection.cursor() as cursor:
        with cursor.copy(command) as copy, memoryview(batch.rows) as rows:
            copy.write(COPY_HEADER)
            for start in range(0, len(rows), COPY_CHUNK_BYTES):
                copy.write(bytes(rows[start : start + COPY_CHUNK_BYTES]))
            copy.write(COPY_TRAILER)
        if cursor.rowcount != batch.count:
            raise DatabaseFailed(
                f"The table took {cursor.rowcount} of {batch.count} rows. A trigger on it drops rows: remove it."
            )


def _archive_table(address: DatabaseAddress) -> sql.Identifier:
    return sql.Identifier(address.schema, address.table)


def _progress_table(address: DatabaseAddress) -> sql.Identifier:
    return sql.Identifier(address.schema, LOADS_TABLE)
