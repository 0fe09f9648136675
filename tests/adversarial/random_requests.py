"""Random legal requests of any size, drawn from the declarations of the messages: any API, any version."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from brokers.engine.handlers.api_table import limit_of
from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.fields import FieldSpec, fields_of, message_class
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.product.system.attacks import SENSIBLE

INTEGER_BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
# For the other fields around arrays.
SPARE_BYTES: Final = 2_000
# Different items of a long array; the others are varied copies of them.
DRAWN_ITEMS_MAX: Final = 12
# A client may let a broker wait; this attack is about the broker's work, not about its waits.
WAIT_MS_MAX: Final = 50
WAITS: Final = ("_wait_ms", "timeout_ms", "timeout")
# Requests with these values get no answer.
NO_ANSWER: Final = {"acks": 0}
NULLS: Final = 0.1
ARRAY_SHAPES: Final = ((0.15, 0), (0.4, 1), (0.75, 8), (0.9, 100), (1.0, 1 << 20))
# Of most requests; the last is more than any API has.
BYTES_MAX: Final = (1 << 16, 1 << 16, 1 << 20, 1 << 20, 1 << 23, 1 << 30)
RECORD_VALUES: Final = (b"", b"x" * 100, bytes(100_000))


@dataclass(frozen=True)
class DrawnRequest:
    """An encoded request."""

    api_key: ApiKey
    version: int
    frame: bytes

    def __str__(self) -> str:
        return f"{self.api_key.name.lower()} {self.version}, {len(self.frame):,} bytes"


class Requests:
    """Draws requests. `names` and `ids` are frequent values of texts and ids: own objects, and objects of others."""

    def __init__(self, random: Random, names: Sequence[str], ids: Sequence[bytes]) -> None:
        self._random = random
        self._names = names
        self._ids = ids
        self._items_left = 0

    def draw(self) -> DrawnRequest:
        api_key = self._random.choice(list(ADVERTISED_TENANT))
        low, high = ADVERTISED_TENANT[api_key]
        version = self._random.choice((high, self._random.randint(low, high)))
        limit = limit_of(api_key)
        items_max = self._random.choice((20, 1_000, limit.items_max))
        bytes_max = min(self._random.choice(BYTES_MAX), limit.bytes_max)
        while True:
            self._items_left = items_max
            request = self._message(message_class(api_key, "request"), version)
            body = codec.encode_request(api_key, version, request)
            if len(body) + SPARE_BYTES <= bytes_max:
                frame = headers.encode_request_frame(api_key, version, 1, self._random.choice(("", "hostile")), body)
                return DrawnRequest(api_key, version, frame)
            items_max //= 4

    def _message(self, cls: type[Any], version: int) -> Any:
        drawn = {
            field: self._value(field, spec, version)
            for field, spec, _ in fields_of(cls)
            if spec.exists(version) and (spec.tag is None or self._random.random() < 0.5)
        }
        return cls(**drawn)

    def _value(self, field: str, spec: FieldSpec, version: int) -> Any:
        random, kind = self._random, spec.kind
        if spec.is_nullable(version) and random.random() < NULLS:
            return None
        if field.endswith(WAITS):
            return random.randint(-1, WAIT_MS_MAX)
        if kind in INTEGER_BITS:
            return self._integer(field, INTEGER_BITS[kind], is_signed=not kind.startswith("u"))
        if kind == "array":
            return self._array(field, spec.inner, version)
        if kind == "nested":
            return self._message(spec.inner, version)
        if kind == "text":
            return self._text()
        if kind == "uuid":
            return random.choice((bytes(16), random.randbytes(16), *self._ids))
        if kind == "boolean":
            return random.random() < 0.5
        if kind == "float64":
            return random.choice((0.0, -1.0, 1.5, 1e300, float("inf")))
        if kind == "records":
            return self._records()
        return random.randbytes(random.choice((0, 1, 20, 3_000)))

    def _integer(self, field: str, bits: int, *, is_signed: bool) -> int:
        random = self._random
        if field in SENSIBLE and not isinstance(SENSIBLE[field], str) and random.random() < 0.6:
            return int(SENSIBLE[field])
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        drawn = random.choice((0, 1, 2, 3, random.randint(0, 100), low, high, random.randint(low, high)))
        return 1 if NO_ANSWER.get(field) == drawn else drawn

    def _text(self) -> str:
        random = self._random
        drawn = random.random()
        if drawn < 0.6:
            return random.choice(self._names)
        if drawn < 0.9:
            return "".join(chr(random.choice((random.randint(32, 126), random.randint(1, 0xD7FF)))) for _ in range(8))
        return random.choice(("", "x", "é", "x" * 249)) * random.choice((1, 2, 30))

    def _array(self, field: str, of: FieldSpec, version: int) -> list[Any]:
        random = self._random
        shape = random.random()
        count_max = next(count for share, count in ARRAY_SHAPES if shape <= share)
        count = min(
            random.randint(0, count_max) if count_max < 1 << 20 else int(10 ** random.uniform(2, 5.7)), self._items_left
        )
        self._items_left -= count
        left_before = self._items_left
        drawn = [self._value(field, of, version) for _ in range(min(count, DRAWN_ITEMS_MAX))]
        # Each copy has as many items in its arrays as the drawn ones on average.
        items_per_drawn = (left_before - self._items_left) // max(len(drawn), 1)
        if items_per_drawn:
            count = min(count, len(drawn) + self._items_left // items_per_drawn)
        self._items_left -= items_per_drawn * (count - len(drawn))
        return [*drawn, *(_varied_copy(drawn[index % len(drawn)], index) for index in range(len(drawn), count))]

    def _records(self) -> bytes:
        random = self._random
        if random.random() < 0.2:
            return random.randbytes(random.choice((0, 1, 60, 61, 200)))
        records = [Record(1_600_000_000_000, None, random.choice(RECORD_VALUES)) for _ in range(random.choice((1, 20)))]
        batch = build_batch(
            records,
            codec=random.choice((NONE, GZIP, SNAPPY, LZ4, ZSTD)),
            attributes=random.choice((0, 0, 0, 0x10, 0x20)),
            producer_id=random.choice((-1, -1, 0, 1, 7)),
            producer_epoch=random.choice((-1, 0)),
            base_sequence=random.choice((-1, 0, 5)),
        )
        if random.random() < 0.2:
            batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        return bytes(batch)


def _varied_copy(item: Any, number: int) -> Any:
    """Returns a copy of an item whose first number or text differs."""
    if isinstance(item, bool) or item is None or isinstance(item, bytes):
        return item
    if isinstance(item, int):
        return number % 128
    if isinstance(item, str):
        return f"{item[:200]}{number}"
    item = copy.copy(item)
    for name in item.__slots__:
        value = getattr(item, name)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            setattr(item, name, _varied_copy(value, number))
            break
    return item
