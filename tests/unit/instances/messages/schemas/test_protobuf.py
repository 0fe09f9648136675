"""Protocol Buffers: files, descriptor sets, values, and what hostile ones may cost."""

from __future__ import annotations

import base64
import json
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import exact_json
from instances.messages.schemas import limits, proto_text, protobuf
from instances.messages.schemas.work import Undecodable, WrongSchema

ORDER = """
// An order.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/wrappers.proto";
option java_package = "com.example; {";
message Order {
  int64 id = 1;
  string customer = 2 [deprecated = true, (my.option) = { a: 1 }];
  enum State { NEW = 0; PAID = 1; LOST = -1; reserved 5; }
  State state = 3;
  message Item { string sku = 1; sint32 count = 2; double price = 3; }
  repeated Item items = 4;
  map<string, int32> tags = 5; /* a * comment ** */
  google.protobuf.Timestamp at = 6;
  oneof way { string mail = 7; bytes raw = 8; }
  repeated int32 numbers = 9;
  reserved 10 to 12, 15; reserved "foo";
  Order parent = 13;
  float ratio = 14;
  .google.protobuf.StringValue note = 16;
  fixed64 big = 17; sfixed32 small = 18; bool flag = 19; uint64 most = 20;
}
message Other { string message = 1; Order.Item item = 2; string optional = 3; optional string map = 4; }
service Shop { rpc Get(Order) returns (Other) { option (http) = { get: "/" }; } }
extend Order { string x = 100; }
"""


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def tagged(number: int, wire: int, rest: bytes) -> bytes:
    return varint(number << 3 | wire) + rest


def number(field: int, value: int) -> bytes:
    return tagged(field, 0, varint(value))


def part(field: int, raw: bytes | str) -> bytes:
    data = raw.encode() if isinstance(raw, str) else raw
    return tagged(field, 2, varint(len(data)) + data)


ITEM = part(1, "A-1") + number(2, 3) + tagged(3, 1, struct.pack("<d", 1.25))


def shown(text: str, raw: bytes, message: str = "") -> Any:
    return json.loads(exact_json.dump(protobuf.parse(text, message).decode(raw)))


def test_every_kind_of_field_is_shown_under_its_name() -> None:
    raw = b"".join([
        number(1, -5), part(2, "Ida"), number(3, 1), part(4, ITEM), part(4, ITEM),
        part(5, part(1, "a") + number(2, 7)), part(6, number(1, 1_700_000_000) + number(2, 5_000_000)),
        part(8, b"\x00\xff"), part(9, varint(1) + varint(300)),
        number(9, 2), part(13, number(1, 9)), tagged(14, 5, struct.pack("<f", 0.1)), part(16, part(1, "hello")),
        tagged(17, 1, struct.pack("<Q", 2**64 - 1)), tagged(18, 5, struct.pack("<i", -2)), number(19, 1),
        number(20, 2**64 - 1), part(99, "not known"), tagged(98, 5, b"1234"), number(97, 1), tagged(96, 1, b"12345678"),
    ])  # fmt: skip
    item = {"sku": "A-1", "count": -2, "price": 1.25}
    assert shown(ORDER, raw) == {
        "id": -5, "customer": "Ida", "state": "PAID", "items": [item, item], "tags": {"a": 7},
        "at": "2023-11-14T22:13:20.005000000Z", "raw": "AP8=", "numbers": [1, 300, 2], "parent": {"id": 9},
        "ratio": 0.1, "note": "hello", "big": 2**64 - 1, "small": -2, "flag": True, "most": 2**64 - 1,
    }  # fmt: skip


def test_the_examples_of_the_encoding_guide_are_read() -> None:
    assert shown("message Test1 { int32 a = 1; }", bytes.fromhex("089601")) == {"a": 150}
    assert shown("message Test2 { string b = 2; }", bytes.fromhex("120774657374696e67")) == {"b": "testing"}
    three = "message Test1 { int32 a = 1; } message Test3 { Test1 c = 3; }"
    assert shown(three, bytes.fromhex("1a03089601"), "Test3") == {"c": {"a": 150}}
    five = "message Test5 { repeated int32 f = 6 [packed=true]; }"
    assert shown(five, bytes.fromhex("3206038e029ea705")) == {"f": [3, 270, 86942]}


def test_empty_values_that_have_to_be_shown_are_shown_as_empty() -> None:
    maps = "message M { map<bool, string> b = 1; map<int32, M> m = 2; map<string, E> e = 3; } enum E { NONE = 0; }"
    raw = part(1, b"") + part(2, b"") + part(3, part(1, "k"))
    assert shown(maps, raw) == {"b": {"false": ""}, "m": {"0": {}}, "e": {"k": 0}}
    wrapped = 'import "google/protobuf/wrappers.proto"; message W { google.protobuf.Int32Value n = 1; }'
    assert shown(wrapped, part(1, b"")) == {"n": 0}


def test_parts_of_one_message_that_come_separately_are_one() -> None:
    assert shown(ORDER, part(13, number(1, 9)) + part(13, part(2, "Ida"))) == {"parent": {"id": 9, "customer": "Ida"}}
    assert shown(ORDER, number(1, 1) + number(1, 2)) == {"id": 2}


def test_the_message_is_chosen_by_name_or_by_indexes() -> None:
    assert shown(ORDER, part(1, "hi") + part(3, "o") + part(4, "m"), "Other") == {
        "message": "hi",
        "optional": "o",
        "map": "m",
    }
    assert shown(ORDER, ITEM, "shop.v1.Order.Item")["sku"] == "A-1"
    schema = protobuf.parse(ORDER, "")
    assert schema.decode(ITEM, (0, 0))[0] == ("sku", "A-1")
    assert schema.decode(part(1, "hi"), (1,))[0] == ("message", "hi")
    for indexes in ((2,), (0, 1), (-1,), (0, 0, 0), ()):
        with pytest.raises(Undecodable):
            schema.decode(ITEM, indexes)
    with pytest.raises(WrongSchema):
        protobuf.parse(ORDER, "Missing")


def test_a_descriptor_set_is_read_like_its_file() -> None:
    """The bytes that `protoc -o` writes: descriptors are messages themselves."""

    def field(name: str, index: int, kind: int, type_name: str = "", label: int = 1) -> bytes:
        named = part(6, type_name) if type_name else b""
        return part(2, part(1, name) + number(3, index) + number(4, label) + number(5, kind) + named)

    state = part(5, part(1, "State") + part(2, part(1, "NEW") + number(2, 0)) + part(2, part(1, "PAID") + number(2, 1)))
    entry = part(3, part(1, "TagsEntry") + field("key", 1, 9) + field("value", 2, 5) + part(7, number(7, 1)))
    fields = field("id", 1, 3) + field("state", 2, 14, ".shop.State") + field("parent", 4, 11, ".shop.Order")
    order = part(4, part(1, "Order") + fields + field("tags", 3, 11, ".shop.Order.TagsEntry", 3) + entry)
    imported = part(1, part(1, "other.proto") + part(2, "other") + part(4, part(1, "Unused") + field("x", 1, 9)))
    text = base64.encodebytes(imported + part(1, part(1, "shop.proto") + part(2, "shop") + order + state)).decode()
    raw = number(1, 7) + number(2, 1) + part(3, part(1, "a") + number(2, 5)) + part(4, number(1, 8))
    assert shown(text, raw) == {"id": 7, "state": "PAID", "tags": {"a": 5}, "parent": {"id": 8}}
    with pytest.raises(WrongSchema):
        protobuf.parse(base64.b64encode(b"\xff" * 40).decode(), "")
    group = part(1, part(1, "g.proto") + part(4, part(1, "G") + field("x", 1, 10, ".G.X")))
    with pytest.raises(WrongSchema, match="Groups"):
        protobuf.parse(base64.b64encode(group).decode(), "")


RECURSIVE = "message N { N n = 1; repeated N r = 2; repeated int32 x = 3; map<int32, N> m = 4; bytes b = 5; }"


def nested(levels: int, field: int = 1) -> bytes:
    raw = b""
    for _ in range(levels):
        raw = part(field, raw)
    return raw


@pytest.mark.parametrize(
    "raw",
    [
        nested(200), nested(2_000, 2), part(2, b"") * 120_000, part(3, b"\1" * 200_000), number(3, 1) * 120_000,
        part(4, number(1, 1) + part(2, b"")) * 30_000, b"\x0a\x00" * 120_000 + part(2, part(2, b"") * 3_000) * 20,
        number(9, 1) * 120_000, part(5, b"x" * 262_145),
    ],
)  # fmt: skip
def test_a_value_of_many_or_deep_messages_is_too_large_within_a_moment(raw: bytes) -> None:
    schema = protobuf.parse(RECURSIVE, "")
    begun_s = time.process_time()
    with pytest.raises(Undecodable) as refusal:
        schema.decode(raw)
    assert time.process_time() - begun_s < 0.5
    assert refusal.value.problem == "too_large"


def test_a_message_of_thousands_of_fields_costs_what_its_bytes_have() -> None:
    fields = " ".join(f"int32 a{n} = {n + 2};" for n in range(3_000))
    schema = protobuf.parse(f"message M {{ repeated M m = 1; {fields} }}", "")
    begun_s = time.process_time()
    schema.decode(part(1, b"") * 9_000)
    assert time.process_time() - begun_s < 3  # 0.4 s; minutes, if each part cost what the message has fields


@given(st.binary(max_size=80))
def test_any_bytes_are_shown_or_refused(raw: bytes) -> None:
    for text in (ORDER, RECURSIVE):
        try:
            exact_json.dump(protobuf.parse(text, "").decode(raw))
        except Undecodable as error:
            assert error.problem in ("damaged", "too_large")


WORDS = [
    "message",
    "A",
    "{",
    "}",
    "=",
    "1",
    ";",
    "int32",
    "map",
    "<",
    ">",
    ",",
    "enum",
    "oneof",
    "repeated",
    "[",
    "]",
    "string",
    '"x"',
    "option",
    ".",
]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words_are_a_file_or_refused(words: list[str]) -> None:
    try:
        proto_text.parse(" ".join(words))
    except WrongSchema as refusal:
        assert len(str(refusal)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "// nothing", "message", "message A { int32 x = 1 }", "message A { B b = 1; }", 'import "a.proto";',
        "message A { int32 x = 1; int32 y = 1; }", "message A { int32 x = 0; }", "message A { int32 x = 536870912; }",
        "message A { int32 x = 99999999999999999999999; }", "message A { group G = 1 { } }", '"' * 10,
        "message A {" * 100, "/*" + "*" * 60_000, "message A {} message A {}", "message A { map<float, A> x = 1; }",
        "enum E { A = 0;", "\x00",
        "message A { " + " ".join(f"int32 a{n} = {n + 1};" for n in range(5_001))[:65_000], "x" * 65_537, "AAAA",
        "message A { oneof x { oneof y { oneof z {", "{" * 60_000, "option x = " + "{" * 60_000,
        "message A { int32 = 1; }",
    ],
)  # fmt: skip
def test_an_invalid_file_is_refused_with_a_reason(text: str) -> None:
    begun_s = time.process_time()
    with pytest.raises(WrongSchema) as refusal:
        protobuf.parse(text, "")
    assert time.process_time() - begun_s < 0.5
    assert 10 < len(str(refusal.value)) < 300


def test_the_longest_file_is_read_in_a_fraction_of_a_second() -> None:
    fields = "".join(f"a a{n}={n + 1};" for n in range(4_900))
    text = f"message a{{}}message b{{{fields}}}"[: limits.SCHEMA_CHARS_MAX]
    begun_s = time.process_time()
    types = proto_text.parse(text)
    assert time.process_time() - begun_s < 1
    assert len(types.messages["b"].fields) == 4_900
