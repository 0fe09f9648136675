"""Choice of the schema that a key or value is decoded by, and Confluent's wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from instances.messages import content, exact_json, limits
from instances.messages.interfaces import Record
from instances.messages.masks import KEY, VALUE, Mask, Masks
from instances.messages.rendering import Renderer
from instances.messages.schemas import sources, wire_format
from instances.messages.schemas.sources import AVRO, CONFLUENT, PLAIN, PROTOBUF, StoredSchema
from instances.messages.schemas.work import Undecodable
from instances.messages.value_paths import parse as path

NUMBER = '{"type": "record", "name": "R", "fields": [{"name": "number", "type": "long"}]}'
TEXT = '{"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}]}'
PROTO = "message A { int32 a = 1; message I { int32 i = 1; } } message B { int32 b = 1; }"


class Schemas:
    """Schemas of values, as a registry or a table would answer them."""

    def __init__(self, *schemas: StoredSchema) -> None:
        self._schemas = schemas

    def plain(self, part: str) -> Sequence[StoredSchema]:
        return [schema for schema in self._schemas if part == VALUE and schema.framing == PLAIN]

    def framed(self, part: str, schema_id: int) -> Sequence[StoredSchema]:
        framed = [schema for schema in self._schemas if part == VALUE and schema.framing == CONFLUENT]
        return [schema for schema in framed if schema.schema_id in (None, schema_id)]


def schema(text: str, kind: str = AVRO, framing: str = PLAIN, schema_id: int | None = None) -> StoredSchema:
    return StoredSchema(format=kind, framing=framing, text=text, schema_id=schema_id)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def shown(source: Any, raw: bytes, how: str = content.AUTO, masks: Masks | None = None) -> content.Content:
    renderer = Renderer(source, masks or Masks(), how, limits.SHOWN_BYTES_MAX)
    record = Record(partition=0, offset=0, timestamp_ms=0, is_append_time=False, key=b"k", value=raw)
    return renderer.show(record).value


def test_a_framed_value_is_decoded_by_the_schema_of_its_id() -> None:
    source = Schemas(schema(NUMBER, AVRO, CONFLUENT, 7), schema(TEXT, AVRO, CONFLUENT, 8))
    assert sources.decode(source, VALUE, framed(7, b"\x0a")).value == [("number", "5")]
    assert sources.decode(source, VALUE, framed(8, b"\x04ab")).value == [("text", "ab")]
    with pytest.raises(Undecodable, match="no_schema"):
        sources.decode(source, VALUE, framed(9, b"\x0a"))
    with pytest.raises(Undecodable, match="no_schema"):
        sources.decode(source, KEY, framed(7, b"\x0a"))
    with pytest.raises(Undecodable, match="damaged"):
        sources.decode(source, VALUE, framed(7, b"\x0a\x0a"))


def test_a_schema_for_any_id_and_one_for_bare_values_stand_behind() -> None:
    source = Schemas(schema(NUMBER, AVRO, CONFLUENT), schema(TEXT))
    assert sources.decode(source, VALUE, framed(1, b"\x0a")).schema_id == 1
    bare = sources.decode(source, VALUE, b"\x04ab")
    assert (bare.value, bare.schema_id) == ([("text", "ab")], None)


@pytest.mark.parametrize(
    ("indexes", "message"),
    [(b"\0", "a"), (b"\x02\x00", "a"), (b"\x02\x02", "b"), (b"\x04\x00\x00", "i")],
)
def test_message_indexes_name_a_message_of_a_protobuf_file(indexes: bytes, message: str) -> None:
    source = Schemas(schema(PROTO, PROTOBUF, CONFLUENT))
    decoded = sources.decode(source, VALUE, framed(1, indexes + b"\x08\x05"))
    assert (decoded.format, decoded.value) == (PROTOBUF, [(message, "5")])


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x02", b"\x01", b"\x7f", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x02\x06\x08\x05", b"\xff" * 12],
)  # fmt: skip
def test_hostile_message_indexes_are_refused(payload: bytes) -> None:
    with pytest.raises(Undecodable):
        sources.decode(Schemas(schema(PROTO, PROTOBUF, CONFLUENT)), VALUE, framed(1, payload))


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\0\0\0", b"\x01\0\0\0\x01x", b"{}"])
def test_bytes_without_a_header_are_not_framed(raw: bytes) -> None:
    assert wire_format.split(raw) is None


def test_a_value_names_the_schema_that_shows_it_or_the_problem() -> None:
    source = Schemas(schema(NUMBER, AVRO, CONFLUENT))
    value = shown(source, framed(7, b"\x0a"))
    assert (value.format, value.data, value.bytes, value.schema_id) == (AVRO, '{"number": 5}', 6, 7)
    damaged = shown(source, framed(7, b"\x0a\x0a"))
    assert (damaged.format, damaged.problem) == (content.HEX, "damaged")
    other = shown(source, b'{"a": 1}')
    assert (other.format, other.data, other.problem) == (content.JSON, '{"a": 1}', "")
    assert shown(source, framed(7, b"\x0a"), content.HEX).data == "00000000070a"
    wrong = shown(source, framed(7, b"\x0a"), PROTOBUF)
    assert (wrong.format, wrong.problem) == (content.HEX, "no_schema")


def test_a_long_decoded_value_is_cut_and_says_so() -> None:
    long = "x" * 100_000
    length = exact_json.dump(None) and bytes([0xC0, 0x9A, 0x0C])
    value = shown(Schemas(schema(TEXT)), length + long.encode())
    assert (value.format, value.truncated, len(value.data or "")) == (AVRO, True, limits.SHOWN_BYTES_MAX)


def test_masks_hold_for_decoded_values_and_hide_what_fits_no_schema() -> None:
    source = Schemas(schema(NUMBER, AVRO, CONFLUENT))
    masks = Masks([Mask(VALUE, path(".number"))])
    assert shown(source, framed(7, b"\x0a"), masks=masks).data == '{"number": "•••"}'
    for how in content.SHOWN_AS:
        assert "10" not in (shown(source, framed(7, b"\x14"), how, masks).data or "")
        assert shown(source, framed(7, b"\x14\x14"), how, masks).format == content.MASKED
