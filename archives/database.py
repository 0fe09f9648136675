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
COPIED_AT_ONCE_BYTES: Final = 1_048_576
REASON_CHARS_MAX: Final = 300
# Maximum of stored offsets and counts; the sum of two such numbers fits into a bigint.
OFFSET_MAX: Final = 2**62
MS_PER_S: Final = 1_000
# Authentication that does not reveal the password, required where the server's certificate is not verified.
_SAFE_METHOD: Final = "scram-sha-256"
_ANY_METHOD: Final = "scram-sha-256,md5,password,none"
_ORDINARY_TABLES: Final = ("r", "p")
_UNLOGGED: Final = "u"


class DatabaseFailed(Exception):
    """The database refuses or does not answer. The message is shown to the tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Progress of one partition as stored in the tenant's database: all offsets below `next_offset` are loaded."""

    next_offset: int
    rows: int = 0
    skipped: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBatch:
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
def connected(database: Database, within_s: float) -> Iterator[psycopg.Connection[Any]]:
    """Yields a connection with an open transaction, which ends after at most `within_s` seconds.

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
                    _limit(connection, within_s)
                    yield connection
            finally:
                connection.close()
    except psycopg.Error as failure:
        raise DatabaseFailed(_reason(failure, relay, address, within_s)) from None
    except (OSError, UnicodeError):
        raise DatabaseFailed(
            f"No public address of the server answers at {address.authority}. Check host and port, and whether a"
            " firewall lets this service in."
        ) from None


def _parameters(database: Database, port: int, within_s: float) -> dict[str, Any]:
    """Returns libpq's parameters, including those that libpq would otherwise read from files of this machine."""
    address = database.address
    is_verified = address.ssl_mode == VERIFY_FULL
    verified = {"sslrootcert": database.ca_file or ssl.get_default_verify_paths().cafile or "system"}
    return {
        "host": address.host, "hostaddr": "127.0.0.1", "port": port, "dbname": address.database,
        "user": database.user, "password": database.password, "sslmode": address.ssl_mode,
        "require_auth": _ANY_METHOD if is_verified else _SAFE_METHOD, "connect_timeout": int(within_s),
        "application_name": APPLICATION, "client_encoding": "utf8", "passfile": os.devnull, "sslcertmode": "disable",
        "gssencmode": "disable", "autocommit": True, "prepare_threshold": None, **(verified if is_verified else {}),
    }  # fmt: skip


def _limit(connection: psycopg.Connection[Any], within_s: float) -> None:
    """Sets the server's timeouts for the transaction, because the server detects a lost client only late."""
    for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(
            sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(int(within_s * MS_PER_S)))
        )


def _reason(failure: psycopg.Error, relay: Relay, address: DatabaseAddress, within_s: float) -> str:
    """Returns a message for the tenant that states the failure and what to do about it."""
    if relay.is_late or isinstance(failure, errors.QueryCanceled | errors.LockNotAvailable | errors.ConnectionTimeout):
        return f"The database did not finish within {within_s:.0f} s. Look for locks on the table, or a busy server."
    if relay.is_too_long:
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


def prepare(
    database: Database, topic: str, topic_id: str, lows: Mapping[int, int], missed: Mapping[int, int]
) -> dict[int, Load]:
    """Returns the progress of each partition.

    Creates missing tables. Partitions that were never loaded begin at `lows`, their log start offsets, with `missed` as
    the count of their missed offsets.

    Raises:
        DatabaseFailed: the tables do not fit, or the database does not answer.
    """
    address = database.address
    with connected(database, limits.PREPARE_S) as connection:
        _require_tables(connection, address)
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (table_name, topic_id, topic, partition, next_offset, rows, skipped_records,"
                " missed_offsets, loaded_at) SELECT %s, %s, %s, number, low, 0, 0, missed, now()"
                " FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS new (number, low, missed)"
                " ON CONFLICT (table_name, topic_id, partition) DO NOTHING"
            ).format(_loads(address)),
            (address.table, topic_id, topic, list(lows), list(lows.values()), [missed.get(index, 0) for index in lows]),
        )
        rows = connection.execute(
            sql.SQL(
                "SELECT partition, next_offset, rows, skipped_records, missed_offsets FROM {}"
                " WHERE table_name = %s AND topic_id = %s"
            ).format(_loads(address)),
            (address.table, topic_id),
        ).fetchall()
    return {row[0]: Load(next_offset=row[1], rows=row[2], skipped=row[3], missed=row[4]) for row in map(_checked, rows)}


def _checked(row: Sequence[Any]) -> Sequence[int]:
    """Returns the row of progress. Raises `DatabaseFailed` if one of its numbers cannot be an offset or a count."""
    if not all(type(number) is int and 0 <= number <= OFFSET_MAX for number in row):
        raise DatabaseFailed(f"{LOADS_TABLE} has a number that no offset can be. Set it right, or delete its rows.")
    return row


def _require_tables(connection: psycopg.Connection[Any], address: DatabaseAddress) -> None:
    """Creates missing tables. Raises `DatabaseFailed` if existing tables do not fit or contradict each other."""
    schema = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)).fetchone()
    if schema is None:
        raise DatabaseFailed(f"The database has no schema {address.schema}. Create it: CREATE SCHEMA {address.schema};")
    has_loads = _fits(connection, address.schema, LOADS_TABLE, LOADS_COLUMNS)
    has_table = _fits(connection, address.schema, address.table, COLUMNS)
    loaded = 0
    if has_loads:
        (loaded, progress_rows), *_ = connection.execute(
            sql.SQL("SELECT coalesce(sum(rows), 0)::bigint, count(*) FROM {} WHERE table_name = %s").format(
                _loads(address)
            ),
            (address.table,),
        ).fetchall()
        has_loads = bool(progress_rows)
    else:
        _create(connection, _loads(address), LOADS_COLUMNS, LOADS_COLUMNS, LOADS_PRIMARY_KEY)
    if not has_table and loaded:
        raise DatabaseFailed(
            f"The table {address.schema}.{address.table} is gone, and {LOADS_TABLE} says that it was loaded. Restore"
            f" it; or, to load the topic again, delete the rows of that table_name from {LOADS_TABLE}."
        )
    if not has_table:
        _create(connection, _table(address), COLUMNS, REQUIRED, PRIMARY_KEY)
    elif not has_loads and connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(_table(address))).fetchone():
        raise DatabaseFailed(
            f"The table {address.schema}.{address.table} has rows, and {LOADS_TABLE} does not say of which offsets."
            " Empty it, or name another table."
        )


def _fits(connection: psycopg.Connection[Any], schema: str, table: str, expected_columns: Mapping[str, str]) -> bool:
    """Returns True if the table exists, False if it does not. Raises `DatabaseFailed` if it cannot store records."""
    name = f"{schema}.{table}"
    kind = connection.execute(
        "SELECT relkind::text, relpersistence::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s",
        (schema, table),
    ).fetchone()
    if kind is None:
        return False
    if kind[0] not in _ORDINARY_TABLES or kind[1] == _UNLOGGED:
        raise DatabaseFailed(f"{name} is not an ordinary, logged table, whose rows stay. Name another table.")
    columns = connection.execute(
        "SELECT attname::text, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = ''"
        " FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped",
        (schema, table),
    ).fetchall()
    types = {column: kind for column, kind, _ in columns}
    for column, type_ in expected_columns.items():
        if types.get(column) != type_:
            raise DatabaseFailed(
                f'The table {name} does not fit: column "{column}" must be {type_},'
                f" and is {str(types.get(column, 'missing'))[:REASON_CHARS_MAX]}. Change it, or name another table."
            )
    for column, _, is_required in columns:
        if column not in expected_columns and is_required:
            raise DatabaseFailed(
                f'The table {name} does not fit: column "{str(column)[:REASON_CHARS_MAX]}" needs a value that a record'
                " does not have. Give it a default, or name another table."
            )
    return True


def _create(
    connection: psycopg.Connection[Any],
    table: sql.Composable,
    columns: Mapping[str, str],
    required: Sequence[str] | Mapping[str, str],
    key: Sequence[str],
) -> None:
    parts: list[sql.Composable] = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(name), sql.SQL(type_), sql.SQL(" NOT NULL" if name in required else "")
        )
        for name, type_ in columns.items()
    ]  # fmt: skip
    parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts)))


def load(database: Database, batch: LoadBatch, at_point: Callable[[str], None]) -> None:
    """Loads a batch and stores the offset after it in one transaction.

    `at_point` is called with the points of `loading.POINTS` from "begun" on.

    Raises:
        DatabaseFailed: neither is stored; or the connection ended during the commit, and the next run reads from the
            database whether both are stored.
    """
    address = database.address
    key = (address.table, batch.topic_id, batch.partition)
    with connected(database, limits.BATCH_S) as connection:
        at_point("begun")
        stored = connection.execute(
            sql.SQL(
                "SELECT next_offset FROM {} WHERE table_name = %s AND topic_id = %s AND partition = %s FOR UPDATE"
            ).format(_loads(address)),
            key,
        ).fetchone()
        if stored is None or stored[0] != batch.start:
            raise DatabaseFailed(
                f"{LOADS_TABLE} was changed while partition {batch.partition} was read. It is tried again."
            )
        if batch.count:
            _copy(connection, address, batch)
        at_point("copied")
        connection.execute(
            sql.SQL(
                "UPDATE {} SET next_offset = %s, rows = rows + %s, skipped_records = skipped_records + %s,"
                " missed_offsets = missed_offsets + %s, loaded_at = now()"
                " WHERE table_name = %s AND topic_id = %s AND partition = %s"
            ).format(_loads(address)),
            (batch.next_offset, batch.count, batch.skipped, batch.missed, *key),
        )
        at_point("stored")
    at_point("committed")


def _copy(connection: psycopg.Connection[Any], address: DatabaseAddress, batch: LoadBatch) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(_table(address), columns)
    with connection.cursor() as cursor:
        with cursor.copy(command) as copy, memoryview(batch.rows) as rows:
            copy.write(COPY_HEADER)
            for start in range(0, len(rows), COPIED_AT_ONCE_BYTES):
                copy.write(bytes(rows[start : start + COPIED_AT_ONCE_BYTES]))
            copy.write(COPY_TRAILER)
        if cursor.rowcount != batch.count:
            raise DatabaseFailed(
                f"The table took {cursor.rowcount} of {batch.count} rows. A trigger on it drops rows: remove it."
            )


def _table(address: DatabaseAddress) -> sql.Identifier:
    return sql.Identifier(address.schema, address.table)


def _loads(address: DatabaseAddress) -> sql.Identifier:
    return sql.Identifier(address.schema, LOADS_TABLE)
