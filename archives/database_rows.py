"""Encoding of records as rows in PostgreSQL's binary format of COPY, and the columns of an archive's tables. Pure."""

from __future__ import annotations

import base64
import json
import struct
from typing import Final

from archives.placing import hour_of
from archives.records import Headers

# Columns of the archive's table with their types, in the order of `packed_row`.
COLUMNS: Final = {
    "topic_id": "text", "partition": "integer", "offset": "bigint", "timestamp": "timestamp with time zone",
    "timestamp_ms": "bigint", "key": "bytea", "value": "bytea", "headers": "jsonb",
}  # fmt: skip
# Columns that are never null.
REQUIRED: Final = ("topic_id", "partition", "offset", "headers")
PRIMARY_KEY: Final = ("topic_id", "partition", "offset")
LOADS_COLUMNS: Final = {
    "table_name": "text", "topic_id": "text", "topic": "text", "partition": "integer", "next_offset": "bigint",
    "rows": "bigint", "skipped_records": "bigint", "missed_offsets": "bigint",
    "loaded_at": "timestamp with time zone",
}  # fmt: skip
LOADS_PRIMARY_KEY: Final = ("table_name", "topic_id", "partition")

# Signature, flags, and length of the header extension.
COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"
JSONB_VERSION: Final = b"\x01"
# Milliseconds from 1970 to 2000-01-01 UTC, from which PostgreSQL counts.
EPOCH_MS: Final = 946_684_800_000
US_PER_MS: Final = 1_000
_NULL: Final = struct.pack("!i", -1)
_COLUMN_COUNT: Final = struct.pack("!h", len(COLUMNS))
_PARTITION_AND_OFFSET: Final = struct.Struct("!iiiq")
_LENGTH_PREFIX: Final = struct.Struct("!i")
_BIGINT: Final = struct.Struct("!iq")
_NO_HEADERS: Final = _LENGTH_PREFIX.pack(3) + JSONB_VERSION + b"[]"


def packed_row(
    topic_id: bytes,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> bytes:
    """Returns one row with the columns of `COLUMNS`.

    The column `timestamp_ms` is set only for a record without a usable timestamp (none, before 1970, after 9999); its
    column `timestamp` is null.
    """
    if hour_of(timestamp_ms) is None:
        timestamps = _NULL + _BIGINT.pack(8, timestamp_ms)
    else:
        timestamps = _BIGINT.pack(8, (timestamp_ms - EPOCH_MS) * US_PER_MS) + _NULL
    return b"".join((
        _COLUMN_COUNT, _LENGTH_PREFIX.pack(len(topic_id)), topic_id,
        _PARTITION_AND_OFFSET.pack(4, partition, 8, offset), timestamps,
        _packed_bytes(key), _packed_bytes(value), packed_headers(headers),
    ))  # fmt: skip


def packed_headers(headers: Headers) -> bytes:
    """Returns headers as a jsonb field: a list, because names may repeat, of names with values in Base64."""
    if not headers:
        return _NO_HEADERS
    document = json.dumps(
        [
            {"key": name, "value": None if value is None else base64.b64encode(value).decode()}
            for name, value in headers
        ],
        ensure_ascii=False,
    ).encode()
    return _LENGTH_PREFIX.pack(len(document) + 1) + JSONB_VERSION + document


def _packed_bytes(part: bytes | None) -> bytes:
    return _NULL if part is None else _LENGTH_PREFIX.pack(len(part)) + part
