"""Avro: values that fastavro wrote are shown, and hostile schemas and bytes end within the limits."""

from __future__ import annotations

import base64
import io
import json
import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import exact_json
from instances.messages.schemas import avro, limits
from instances.messages.schemas.work import Undecodable, WrongSchema

NAMES = st.sampled_from([f"f{n}" for n in range(5)])
LEAVES = st.sampled_from([
    ("null", st.none()), ("boolean", st.booleans()), ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)), ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)), ("string", st.text(max_size=8)),
])  # fmt: skip


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema of some nesting, and a value of it."""
    counter = iter(range(1_000))

    def one(depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        kind = draw(st.sampled_from(["leaf", "array", "map", "record", "union"] if depth < 3 else ["leaf"]))
        if kind == "leaf":
            return draw(LEAVES)
        if kind == "union":
            schema, values = one(3)
            return (schema, values) if schema == "null" else (["null", schema], st.none() | values)
        if kind == "record":
            fields = {name: one(depth + 1) for name in draw(st.lists(NAMES, max_size=3, unique=True))}
            schema = {"type": "record", "name": f"R{next(counter)}",
                      "fields": [{"name": name, "type": inner} for name, (inner, _) in fields.items()]}  # fmt: skip
            return schema, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})
        inner, values = one(depth + 1)
        if kind == "array":
            return {"type": "array", "items": inner}, st.lists(values, max_size=3)
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)

    schema, values = one(0)
    return schema, draw(values)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def plain(value: Any) -> Any:
    return json.loads(exact_json.dump(value))


def same(left: Any, right: Any) -> bool:
    """Equal, where floats of 32 bits may be written with fewer digits."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-45)
    return bool(left == right)


@given(typed_values())
def test_values_written_by_fastavro_are_shown_as_they_were(typed: tuple[Any, Any]) -> None:
    schema, value = typed
    raw = written(schema, value)
    assert same(value, plain(avro.parse(json.dumps(schema)).decode(raw)))


@given(typed_values(), st.data())
def test_bytes_that_are_cut_or_changed_are_shown_or_refused(typed: tuple[Any, Any], data: st.DataObject) -> None:
    schema, value = typed
    raw = bytearray(written(schema, value))
    if raw:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        exact_json.dump(avro.parse(json.dumps(schema)).decode(bytes(raw)))
    except Undecodable as error:
        assert error.problem in ("damaged", "too_large")


def test_logical_types_are_shown_as_people_write_them() -> None:
    kinds = {
        "date": ({"type": "int", "logicalType": "date"}, date(2026, 2, 3), "2026-02-03"),
        "ms": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC),
               "2026-01-02T03:04:05.006Z"),
        "us": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC),
               "1969-12-31T23:59:59.000005Z"),
        "money": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-12.34"), -12.34),
        "raw": ("bytes", b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        "fixed": ({"type": "fixed", "name": "F", "size": 3}, b"abc", "YWJj"),
        "state": ({"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}, "PAID", "PAID"),
        "nan": ("double", math.nan, "nan"),
    }  # fmt: skip
    schema = {
        "type": "record",
        "name": "a.b.R",
        "fields": [{"name": n, "type": kind} for n, (kind, _, _) in kinds.items()],
    }
    raw = written(schema, {name: value for name, (_, value, _) in kinds.items()})
    shown = plain(avro.parse(json.dumps(schema)).decode(raw))
    assert shown == {name: expected for name, (_, _, expected) in kinds.items()}


def test_moments_that_no_calendar_has_are_numbers() -> None:
    schema = avro.parse('{"type": "long", "logicalType": "timestamp-millis"}')
    assert schema.decode(written("long", 2**63 - 1)) == "9223372036854775807"


def laughs(levels: int) -> str:
    """Records that have the one before twice, declared by names: 2^levels values without any byte."""
    schema: Any = {"type": "record", "name": "L0", "fields": []}
    for level in range(1, levels + 1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"L{level - 1}"}]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    return json.dumps(schema)


COUNT_WITHOUT_END = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        ('{"type": "array", "items": "null"}', COUNT_WITHOUT_END),
        ('{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}', COUNT_WITHOUT_END),
        ('{"type": "map", "values": "null"}', b"\xfe\xff\x7f" + b"\x00" * 262_000),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}', b"\x02" * 262_000),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}', b""),
        ('{"type": "array", "items": {"type": "array", "items": "null"}}', b"\x02" * 262_000),
        (laughs(15), b""),
        ('{"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["%s"]}}' % ("x" * 60_000),
         b"\xfe\x01" + b"\x00" * 200),
        ('{"type": "array", "items": "string"}', b"\x02" * 262_145),
    ],
)  # fmt: skip
def test_a_value_that_grows_without_bytes_is_too_large_within_a_moment(schema: str, raw: bytes) -> None:
    parsed = avro.parse(schema)
    begun_s = time.process_time()
    with pytest.raises(Undecodable) as refusal:
        parsed.decode(raw)
    assert time.process_time() - begun_s < 0.5
    assert refusal.value.problem == "too_large"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "5", "null", "{}", '"nothing"', '{"type": "array"}', "[" * 50_000,
        '{"type": "fixed", "name": "F", "size": -1}', '{"type": "fixed", "name": "F", "size": true}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Missing"}]}',
        '{"type": "enum", "name": "E", "symbols": [1]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": {"a": [1]}}]}',
        json.dumps({"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "int"} for n in range(2_000)]}),
        laughs(40), "[" + ", ".join(['"int"'] * 30_000) + "]", "x" * (limits.SCHEMA_CHARS_MAX + 1),
        '{"type": {"type": ' * 40 + '"int"' + "}}" * 40,
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_a_reason(text: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(WrongSchema) as refusal:
        avro.parse(text)
    assert time.process_time() - begun_s < 0.5
    assert 10 < len(str(refusal.value)) < 300
