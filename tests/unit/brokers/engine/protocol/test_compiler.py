"""Field kinds that the compiler supports beyond the table: nullable structs, unsigned integers, flat arrays."""

from __future__ import annotations

import pytest

from brokers.engine.protocol.apis import Api, ApiKey
from brokers.engine.protocol.compile_decode import compile_decoder
from brokers.engine.protocol.compile_encode import compile_encoder
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fields import array, float64, int8, nested, struct, text, uint16, uint32, uuid


@struct
class Cursor:
    topic: str = text()
    partition: int = int8()


@struct
class Everything:
    small: int = uint16()
    cursor: Cursor | None = nested(Cursor, null_since=0)
    large: int = uint32()
    ids: list[bytes] | None = array("uuid", null_since=0)
    ratios: list[float] = array("float64")
    names: list[str | None] = array("text")
    extra: Cursor = nested(Cursor, since=1, tag=200)
    ratio: float = float64(since=1, tag=3, default=0.5)
    id: bytes = uuid(since=1, tag=4)


API = Api(ApiKey.FETCH, 1, 1, 0, "none")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "value",
    [
        Everything(),
        Everything(small=65535, cursor=Cursor(topic="t", partition=-1), large=0xFFFF_FFFF, ids=[bytes(range(16))] * 2),
        Everything(ids=None, ratios=[1.5, -2.0], names=["a", "", "é" * 70]),
        Everything(cursor=Cursor(topic="x" * 200), ids=[]),
    ],
)
def test_every_kind_of_field_survives(version: int, value: Everything) -> None:
    body = compile_encoder(Everything, API, version)(value)
    decode = compile_decoder(Everything, API, version, 100)
    assert decode(body, 0, len(body)) == value
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode(body, 0, length)


def test_a_nullable_struct_stands_behind_a_marker() -> None:
    absent = compile_encoder(Everything, API, 1)(Everything())
    present = compile_encoder(Everything, API, 1)(Everything(cursor=Cursor(topic="t", partition=7)))
    assert absent[2:3] == b"\xff"
    assert present[2:7] == b"\x01\x02t\x07\x00"


def test_tagged_fields_are_written_in_order_and_only_when_they_differ() -> None:
    encode = compile_encoder(Everything, API, 1)
    assert encode(Everything()).endswith(b"\x00")
    body = encode(Everything(extra=Cursor(topic="t"), ratio=1.0, id=b"\x01" * 16))
    tail = (
        b"\x03"
        + b"\x03\x08"
        + bytes.fromhex("3ff0000000000000")
        + b"\x04\x10"
        + b"\x01" * 16
        + b"\xc8\x01\x04\x02t\x00\x00"
    )
    assert body.endswith(tail)
    assert compile_decoder(Everything, API, 1, 100)(body, 0, len(body)).extra == Cursor(topic="t")


def test_the_items_of_all_arrays_together_are_bounded() -> None:
    body = compile_encoder(Everything, API, 1)(Everything(ratios=[0.0] * 6, names=["a"] * 5))
    compile_decoder(Everything, API, 1, 11)(body, 0, len(body))
    with pytest.raises(MalformedRequest, match="too many items"):
        compile_decoder(Everything, API, 1, 10)(body, 0, len(body))
