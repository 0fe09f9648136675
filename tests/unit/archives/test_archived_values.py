"""Columns of record values: valid values are exact, and invalid ones do not affect others."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from archives.columns import COLUMNS_MAX, SchemaRefused
from archives.json_columns import parse_members
from archives.values import AVRO, FRAMED_AVRO, JSON, RAW, columns_of

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
    found = columns.build_array([columns.decode_row(json.dumps(written).encode())])[0].to_pylist()[0]
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
    assert columns.build_array([columns.decode_row(value)])[0].to_pylist() == [written]
    assert columns.decode_row(value + b"\x00") is None and columns.decode_row(value[:-1]) is None


@given(st.binary(max_size=200), st.sampled_from([(JSON, COLUMNS), (AVRO, RECORD), (FRAMED_AVRO, RECORD)]))
def test_any_bytes_are_a_row_or_none_and_become_an_array(value: bytes, declared: tuple[str, Any]) -> None:
    columns = columns_of(*declared)
    row = columns.decode_row(value)
    found, unfit = columns.build_array([row, None])
    assert len(found) == 2 and not found[1].is_valid
    assert unfit == 2 - found[0].is_valid and (row is not None or unfit == 2)


@given(JSON_VALUES)
def test_any_json_is_a_row_or_none_and_becomes_an_array(value: Any) -> None:
    columns = columns_of(JSON, COLUMNS)
    for each in (value, {"id": value}, {"at": value}, {"who": value, "price": value}):
        row = columns.decode_row(json.dumps(each).encode())
        assert len(columns.build_array([row])[0]) == 1


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 1_000_000, b'{"id":' * 100_000, b'{"id":%s}' % (b"9" * 1_000_000), b'{"price":1e999}', b'{"price":NaN}',
        b'{"price":9007199254740993}', b'{"price":%s}' % (b"9" * 400),
        b'{"who":"\\ud800"}', b'{"id":1.0}', b'{"id":true}', b'{"paid":1}', b'{"at":"yesterday"}',
        b'{"at":99999999999999999}', b'{"at":"0001-01-01T00:00:00+14:00"}', b"\xff\xfe{}", b"7", b"",
    ],
)  # fmt: skip
def test_json_that_fits_no_column_has_none(value: bytes) -> None:
    columns = columns_of(JSON, COLUMNS)
    assert columns.decode_row(value) is None


@pytest.mark.parametrize(
    "text",
    [
        "12345678901234567890.25", "1e400", "-0", "1.10", '{"a" : [1e400,\t0.10]}', '"\\ud800"',
        "9" * 4_000, '"\\u0041"', "[ ]", "true",
    ],
)  # fmt: skip
def test_a_json_column_has_the_text_that_was_written(text: str) -> None:
    columns = columns_of(JSON, COLUMNS)
    row = columns.decode_row(f' {{ "id" : 7, "lines" :{text} , "more": 1 }} '.encode())
    assert columns.build_array([row])[0].to_pylist()[0]["lines"] == text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@given(JSON_VALUES | st.dictionaries(st.sampled_from(["a", "b", "NaN"]) | TEXTS, JSON_VALUES, max_size=4), st.data())
def test_an_object_that_is_read_member_by_member_is_the_object(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1])))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(["", ",", "{", "}", '"', " ", "\x0b"])) + text[at + 1 :]
    try:
        expected = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        expected = None
    if not isinstance(expected, dict):
        with pytest.raises(ValueError):
            parse_members(text)
        return
    found = parse_members(text)
    assert {name: each for name, (each, _) in found.items()} == expected
    assert {name: json.loads(written) for name, (_, written) in found.items()} == expected


def zigzag(number: int) -> bytes:
    """Returns an integer of any size in Avro's encoding."""
    number = number * 2 if number >= 0 else -number * 2 - 1
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*result, number])


WORST = st.binary(max_size=24) | st.integers(-(2**70), 2**70).map(zigzag) | st.sampled_from(
    [3_000_000_000, -3_000_000_000, 2**63 - 1, -(2**63), 2**31, 253_402_300_800_000_000]
).map(zigzag)  # fmt: skip


@given(st.sampled_from(AVRO_FIELDS), st.lists(WORST, min_size=1, max_size=6), st.booleans())
def test_the_worst_value_of_each_type_of_avro_is_a_column_or_unfit(
    field: dict[str, Any], values: list[bytes], nullable: bool
) -> None:
    """Neighbouring values stay valid."""
    kind = ["null", field["type"]] if nullable and not isinstance(field["type"], list) else field["type"]
    columns = columns_of(AVRO, {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
    rows = [columns.decode_row(value) for value in values]
    found, unfit = columns.build_array(rows)
    assert len(found) == len(values) and unfit == found.null_count
    for row, each in zip(rows, found, strict=True):
        assert each.is_valid == (row is not None and columns.build_array([row])[1] == 0)


def test_an_avro_value_beyond_its_type_is_unfit_and_no_other() -> None:
    """An `int` has 32 bits; a writer of `long` sends more."""
    columns = columns_of(AVRO, {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}]})
    found, unfit = columns.build_array([columns.decode_row(zigzag(number)) for number in (7, 3_000_000_000, -(2**31))])
    assert (found.to_pylist(), unfit) == ([{"f": 7}, None, {"f": -(2**31)}], 1)


JSON_WORST = st.sampled_from(
    ["1e400", "-1e400", "1e-400", "9007199254740993", "12345678901234567890.25", "9" * 400, "9" * 5_000, "1E+2", "-0.0",
     '"\\ud800"', '"\\u0000"', '"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59.999-14:00"', "253402300800000",
     "-62135596800001", "[[[[]]]]", "{}", "null", "true"]
) | JSON_VALUES.map(json.dumps)  # fmt: skip


@given(st.sampled_from([each["type"] for each in COLUMNS]), st.lists(JSON_WORST, min_size=1, max_size=6))
def test_the_worst_value_of_each_type_of_json_is_a_column_or_unfit(kind: str, texts: list[str]) -> None:
    columns = columns_of(JSON, [{"name": "f", "type": kind}])
    rows = [columns.decode_row(f'{{"f":{text}}}'.encode()) for text in texts]
    found, unfit = columns.build_array(rows)
    assert unfit == found.null_count == sum(row is None for row in rows)
    for text, each in zip(texts, found.to_pylist(), strict=True):
        if each is None or kind not in ("number", "json") or text == "null":
            continue
        if kind == "json":
            assert each["f"] == text
        else:
            number = Decimal(text)
            assert math.isfinite(each["f"]) and (
                number != number.to_integral_value() or "." in text or "e" in text.lower() or each["f"] == number
            )


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


def test_schema_properties_beside_the_types_change_nothing() -> None:
    """Our own metadata says that a schema was checked."""
    schema = {**RECORD, "__fastavro_parsed__": True, "__named_schemas": {}, "aliases": ["x"]}
    assert columns_of(AVRO, schema).fields == columns_of(AVRO, RECORD).fields


def test_values_of_a_topic_without_columns_have_none() -> None:
    columns = columns_of(RAW, None)
    assert columns.decode_row(b"{}") is None and not columns.fields
