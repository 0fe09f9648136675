"""Batches that no client library writes: arbitrary fields with a valid checksum."""

from __future__ import annotations

import random

from brokers.engine.records import batch as layout
from brokers.engine.records.compression import compress
from brokers.engine.wire.varints import encode_signed

NOW_MS = 1_700_000_000_000
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
EXTREMES = (0, 1, -1, 127, 128, 300, INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, NOW_MS)


def field(content: bytes | None, length: int | None = None) -> bytes:
    if content is None:
        return encode_signed(-1 if length is None else length)
    return encode_signed(len(content) if length is None else length) + content


def record(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    headers: bytes = b"\x00",
    length: int | None = None,
) -> bytes:
    """Encodes a record; `headers` are their declared number and their bytes, and `length` is the declared record
    length.
    """
    body = b"\x00" + encode_signed(timestamp_delta) + encode_signed(offset_delta) + field(key) + field(value) + headers
    return encode_signed(len(body) if length is None else length) + body


def batch(
    payload: bytes,
    count: int = 1,
    *,
    attributes: int = 0,
    last_delta: int | None = None,
    base_offset: int = 0,
    base_ms: int = NOW_MS,
    max_ms: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """Encodes a batch; `payload` is already compressed with the codec in `attributes`, if any."""
    data = bytearray(layout.HEADER_BYTES)
    length = layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload)
    delta = count - 1 if last_delta is None else last_delta
    fields = (base_offset, length, -1, layout.MAGIC, 0, attributes, delta, base_ms, max_ms, *producer, count)
    layout.HEADER.pack_into(data, 0, *fields)
    data += payload
    layout.write_crc(data)
    return data


def some_record(dice: random.Random, index: int) -> bytes:
    """Returns a random record, usually a valid one."""
    headers = b"\x00"
    if dice.random() < 0.2:
        number = dice.choice((1, 2, 3))
        claimed = number if dice.random() < 0.8 else dice.choice((-1, 0, INT_MAX, number + 1))
        pair = field(b"h", _lie(dice, 1)) + field(dice.choice((b"", None, b"q")))
        headers = encode_signed(claimed) + pair * number
    made = bytearray(
        record(
            dice.choice((b"k1", b"k2", b"", None, b"x" * 70)),
            dice.choice((b"v", b"", None, b"y" * 300)),
            timestamp_delta=dice.choice((0, 0, 0, 5, *EXTREMES)),
            offset_delta=index if dice.random() < 0.8 else dice.choice((0, 1, -1, INT_MAX, INT_MIN)),
            headers=headers,
            length=_lie(dice, None),
        )
    )
    if dice.random() < 0.02:
        made[dice.randrange(len(made))] = dice.randrange(256)
    return bytes(made)


def _lie(dice: random.Random, truth: int | None) -> int | None:
    return dice.choice((0, -1, 7, INT_MAX)) if dice.random() < 0.02 else truth


def some_batch(dice: random.Random) -> bytearray:
    """Returns a random batch, sometimes a valid one."""
    number = dice.choice((1, 1, 2, 3, 4, 5, 6, 9, 70))
    codec = dice.choice((0, 0, 0, 1, 2, 3, 4))
    payload = compress(codec, b"".join(some_record(dice, index) for index in range(number)))
    base_ms = dice.choice((NOW_MS, NOW_MS, NOW_MS - 5, -1, 0, LONG_MAX, LONG_MIN))
    data = batch(
        payload,
        number if dice.random() < 0.95 else dice.choice((0, -1, 1, INT_MAX, INT_MIN)),
        attributes=codec | dice.choice((0, 0, 0, 0, 0x08, 0x40, 0x48, 0x7F80, -0x8000)),
        last_delta=number - 1 if dice.random() < 0.95 else dice.choice((0, -1, INT_MAX, INT_MIN)),
        base_offset=0 if dice.random() < 0.98 else dice.choice((1, -1)),
        base_ms=base_ms,
        max_ms=dice.choice((NOW_MS, NOW_MS, -1, LONG_MAX, LONG_MIN, base_ms)),
        producer=(
            dice.choice((-1, -1, -1, 7, LONG_MAX, -9)),
            dice.choice((0, 0, 1, -1, 32_767, -32_768)),
            dice.choice((-1, 0, 0, 1, INT_MAX, -5)),
        ),
    )
    if dice.random() < 0.02:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    if dice.random() < 0.03:
        data += data[: dice.randrange(len(data))]
    return data
