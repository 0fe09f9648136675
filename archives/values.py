"""Formats of values and the columns of each. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from archives.avro_columns import avro_columns
from archives.columns import NO_COLUMNS, SCHEMA_CHARS_MAX, Columns, SchemaRefused
from archives.json_columns import json_columns

RAW, JSON, AVRO, FRAMED_AVRO = "raw", "json", "avro", "framed_avro"

# Confluent's wire format: a zero byte and a schema id of four bytes (the registry is not queried).
FRAME_BYTES: Final = 5


def columns_of(value_format: str, schema: Any) -> Columns:
    """Returns the columns of a format. `schema` is None for `raw`, a list of `{"name", "type"}` for `json`, a record
    schema for Avro.

    Raises:
        SchemaRefused: the schema does not fit the format; the message is for the user who entered it.
    """
    if value_format == RAW:
        if schema is not None:
            raise SchemaRefused("Raw values have no schema.")
        return NO_COLUMNS
    if schema is None:
        raise SchemaRefused("Name the columns.")
    try:
        document = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        document.encode()
    except (ValueError, RecursionError):
        raise SchemaRefused("The schema is no JSON.") from None
    if len(document) > SCHEMA_CHARS_MAX or "\\u0000" in document:
        raise SchemaRefused(f"The schema has more than {SCHEMA_CHARS_MAX} characters, or one that is not allowed.")
    if value_format == JSON:
        return json_columns(schema)
    return avro_columns(schema, FRAME_BYTES if value_format == FRAMED_AVRO else 0)
