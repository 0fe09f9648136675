"""Columns of records' values: what fits is read as it was written, and what does not fit harms nobody."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from billing.archives.columns import COLUMNS_MAX, SchemaRefused
from billing.archives.values import AVRO, FRAMED_AVRO, JSON, RAW, columns_of

COLUMNS = [
    {"name": "id", "type": "integer"}, {"name": "price", "type": "number"}, {"name": "paid", "type": "boolean"},
    {"name": "at", "type": "timestamp"}, {"name": "who", "type": "string"}, {"name": "lines", "type": "json"},
]  # fmt: skip
AVRO_FIELDS = [
    {"name": "id", "type": "long"}, {"name": "small", "type": "int"}, {"name": "price", "type": "double"},
    {"name": "paid", "type": ["null", "boolean"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}}, {"name": "who", "type": ["string", "null"]},
    {"name": "raw", "type": "bytes"}, {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
]  # fmt: skip
RECORD = {"type": "record", "name": "Order", "fields": AVRO_FIELDS}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 30)).map(  # noqa: DTZ001
    lambda when: when.replace(microsecond=when.microsecond // 1_000 * 1_000, tzinfo=UTC)
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=10,
)  # fmt: skip


def avro_bytes(row: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(RECORD), row)
    return target.getvalue()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": INT64, "price": st.floats(allow_nan=False, allow_infinity=False), "paid": st.booleans(),
            "at": MOMENTS.map(datetime.isoformat), "who": TEXTS, "lines": JSON_VALUES, "more": JSON_VALUES,
        },
    )
)  # fmt: skip
def test_a_json_object_that_fits_is_read_as_it_was_written(written: dict[str, Any]) -> None:
    columns = columns_of(JSON, COLUMNS)
    found = columns.array([columns.row(json.dumps(written).encode())]).to_pylist()[0]
    for name in ("id", "price", "paid", "who"):
        assert found[name] == written.get(name)
    assert found["at"] == (datetime.fromisoformat(written["at"]) if "at" in written else None)
    lines = written.get("lines")
    assert (found["lines"] is None) if lines is None else (json.loads(found["lines"]) == lines)


@given(
    st.fixed_dictionaries({
        "id": INT64, "small": st.integers(-(2**31), 2**31 - 1), "price": st.floats(allow_nan=False),
        "paid": st.none() | st.booleans(), "at": MOMENTS, "day": st.dates(date(1970, 1, 1)), "who": st.none() | TEXTS,
        "raw": st.binary(max_size=20), "kind": st.sampled_from("AB"), "four": st.binary(min_size=4, max_size=4),
    }),
    st.booleans(),
)  # fmt: skip
def test_an_avro_record_that_fits_is_read_as_it_was_written(written: dict[str, Any], framed: bool) -> None:
    columns = columns_of(FRAMED_AVRO if framed else AVRO, RECORD)
    value = (b"\x00\x00\x00\x00\x07" if framed else b"") + avro_bytes(written)
    assert columns.array([columns.row(value)]).to_pylist() == [written]
    assert columns.row(value + b"\x00") is None and columns.row(value[:-1]) is None


@given(st.binary(max_size=200), st.sampled_from([(JSON, COLUMNS), (AVRO, RECORD), (FRAMED_AVRO, RECORD)]))
def test_any_bytes_are_a_row_or_none_and_become_an_array(value: bytes, declared: tuple[str, Any]) -> None:
    columns = columns_of(*declared)
    row = columns.row(value)
    found = columns.array([row, None])
    assert len(found) == 2 and found[0].is_valid == (row is not None) and not found[1].is_valid


@given(JSON_VALUES)
def test_any_json_is_a_row_or_none_and_becomes_an_array(value: Any) -> None:
    columns = columns_of(JSON, COLUMNS)
    for each in (value, {"id": value}, {"at": value}, {"who": value, "price": value}):
        row = columns.row(json.dumps(each).encode())
        assert len(columns.array([row])) == 1


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 1_000_000, b'{"id":' * 100_000, b'{"id":%s}' % (b"9" * 1_000_000), b'{"price":1e999}', b'{"price":NaN}',
        b'{"who":"\\ud800"}', b'{"id":1.0}', b'{"id":true}', b'{"paid":1}', b'{"at":"yesterday"}',
        b'{"at":99999999999999999}', b'{"at":"0001-01-01T00:00:00+14:00"}', b"\xff\xfe{}", b"7", b"",
    ],
)  # fmt: skip
def test_json_that_fits_no_column_has_none(value: bytes) -> None:
    columns = columns_of(JSON, COLUMNS)
    row = columns.row(value)
    assert row is None or row[1] == float("inf")
    columns.array([row])


@pytest.mark.parametrize(
    ("value_format", "schema"),
    [
        (RAW, []), (JSON, None), (JSON, []), (JSON, {}), (JSON, ["id"]), (JSON, [{"name": "id"}]),
        (JSON, [{"name": "id", "type": "uuid"}]), (JSON, [{"name": "a b", "type": "string"}]),
        (JSON, [{"name": "id", "type": "string"}, {"name": "ID", "type": "string"}]),
        (JSON, [{"name": 1, "type": "string"}]), (JSON, [{"name": "id", "type": ["string"]}]),
        (JSON, [{"name": f"c{number}", "type": "string"} for number in range(COLUMNS_MAX + 1)]),
        (AVRO, None), (AVRO, "string"), (AVRO, {"type": "record", "name": "R", "fields": []}),
        (AVRO, {"type": "record", "name": "R", "fields": "id"}),
        *(
            (AVRO, {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
            for kind in (
                "null", "Order", {"type": "array", "items": "null"}, {"type": "map", "values": "null"},
                ["null", "null"],
                ["int", "string"], [["null", "int"]], {"type": "fixed", "name": "F", "size": 0},
                {"type": {"type": "int"}},
                {"type": "fixed", "name": "F", "size": 2**40}, {"type": "enum", "name": "E", "symbols": []},
                {"type": "enum", "name": "E", "symbols": [1]}, {"type": "enum", "name": "E", "symbols": ["A", "A"]},
                {"type": "bytes", "logicalType": "decimal", "precision": 4}, 7, None, {}, [],
                {"type": "record", "name": "Inner", "fields": []},
            )
        ),
        (JSON, [{"name": "c" * 99, "type": "string"}] * 1_000),
        *((AVRO, {**RECORD, "doc": text}) for text in ("\u0000", "\ud800", "x" * 20_000, float("nan"))),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_made_are_refused(value_format: str, schema: Any) -> None:
    with pytest.raises(SchemaRefused):
        columns_of(value_format, schema)


def test_what_a_schema_says_beside_its_types_changes_nothing() -> None:
    """Nobody but us says that a schema was looked at."""
    schema = {**RECORD, "__fastavro_parsed__": True, "__named_schemas": {}, "aliases": ["x"]}
    assert columns_of(AVRO, schema).fields == columns_of(AVRO, RECORD).fields


def test_values_of_a_topic_without_columns_have_none() -> None:
    columns = columns_of(RAW, None)
    assert columns.row(b"{}") is None and not columns.fields
