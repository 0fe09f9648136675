"""Columns of Avro records: the fields of a flat schema. Pure."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from archives.columns import (
    TIMESTAMP_MS_TYPE,
    Columns,
    Row,
    SchemaRefused,
    ValueUnfit,
    arrow_fields,
    require_column_name,
)

_FIXED_BYTES: Final = range(1, 1_000_001)

_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("long", "timestamp-millis"): TIMESTAMP_MS_TYPE,
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("int", "date"): pa.date32(),
    ("string", "uuid"): pa.string(),
}


def avro_columns(schema: Any, skipped_bytes: int) -> Columns:
    """Returns the columns of a flat record. Nested types are refused: a few bytes of them can decode to any amount of
    memory.

    Values begin with `skipped_bytes` bytes that are not decoded (0, or the header of a schema registry).

    Raises:
        SchemaRefused: the schema is not a flat record schema.
    """
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import SchemaParseException

    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise SchemaRefused("The schema of Avro must be of a record.")
    types: dict[str, pa.DataType] = {}
    fields = []
    for column in schema["fields"]:
        if not isinstance(column, dict) or "type" not in column:
            raise SchemaRefused("A field of the record has a name and a type.")
        name = require_column_name(column.get("name"), types)
        types[name], kind = _avro_type(column["type"], name)
        fields.append({"name": name, "type": kind})
    try:
        # The schema is rebuilt from the checked parts only.
        parsed = parse_schema({"type": "record", "name": "Value", "fields": fields})
    except (SchemaParseException, ValueError, TypeError, KeyError) as refusal:
        raise SchemaRefused(f"That is no schema of Avro: {str(refusal)[:200]}") from None

    def decode(value: bytes) -> Row:
        if skipped_bytes and (len(value) < skipped_bytes or value[0] != 0):
            raise ValueUnfit("not framed")
        source = io.BytesIO(value)
        source.seek(skipped_bytes)
        record: Any = schemaless_reader(source, parsed, None)
        if source.tell() != len(value):
            raise ValueUnfit("more bytes than the record has")
        return tuple(
            str(field) if kind == pa.string() and field is not None else field
            for kind, field in ((kind, record[name]) for name, kind in types.items())
        )

    return Columns(fields=arrow_fields(types), decode=decode)


def _avro_type(kind: Any, name: str) -> tuple[pa.DataType, Any]:
    """Returns the type of a column and the Avro type, as it is written in the rebuilt schema."""
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(others) != 1 or len(kind) != 2 or isinstance(others[0], list):
            raise _refusal(name)
        column, inner = _avro_type(others[0], name)
        return column, [inner if branch is others[0] else "null" for branch in kind]
    if isinstance(kind, dict):
        return _avro_dict(kind, name)
    if isinstance(kind, str) and kind in _TYPES:
        return _TYPES[kind], kind
    raise _refusal(name)


def _avro_dict(kind: Mapping[str, Any], name: str) -> tuple[pa.DataType, Any]:
    simple, logical = kind.get("type"), kind.get("logicalType")
    if simple == "enum" and isinstance(symbols := kind.get("symbols"), list) and symbols:
        return pa.string(), {"type": "enum", "name": f"Enum_{name}".replace("-", "_"), "symbols": symbols}
    if simple == "fixed" and logical is None and type(size := kind.get("size")) is int and size in _FIXED_BYTES:
        return pa.binary(), {"type": "fixed", "name": f"Fixed_{name}".replace("-", "_"), "size": size}
    if logical is None:
        return _avro_type(simple, name) if isinstance(simple, str) else _avro_type(None, name)
    if isinstance(simple, str) and (column := _LOGICAL.get((simple, str(logical)))) is not None:
        return column, {"type": simple, "logicalType": logical}
    raise _refusal(name)


def _refusal(name: str) -> SchemaRefused:
    types = ", ".join((*_TYPES, "enum", "fixed", *(logical for _, logical in _LOGICAL)))
    return SchemaRefused(f"Field {name}: a column is one of {types}, or a union of null and one of them.")
