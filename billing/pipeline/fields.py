"""Validation of the fields of usage events, so that every row fits its tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from billing.pipeline import schema
from brokers.contract.usage import COUNTED_THINGS, FIELD_NAMES, counted_name

# Maximum length of instance ids in all tables.
INSTANCE_ID_CHARACTERS_MAX: Final = 16
# End of the year 9999: no table has a later time.
CALENDAR_END_MS: Final = 253_402_300_800_000
# Larger than any real counter: 10^18 bytes are an exabyte, and no counter of requests reaches that number.
COUNT_MAX: Final = 10**18
SEQUENCE_MAX: Final = 10**12
# Minimum and maximum of each number.
NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "broker_id": (0, 2**31 - 1), "broker_epoch": (0, 2**63 - 1), "sequence": (0, SEQUENCE_MAX),
    "at_ms": (1, CALENDAR_END_MS - 1), "bytes": (0, COUNT_MAX), "requests": (0, COUNT_MAX),
}  # fmt: skip
# Maximum length of a problem's detail; at most as many bytes of the record are decoded.
DETAIL_CHARACTERS_MAX: Final = 200
_COUNTED = frozenset(COUNTED_THINGS)

ARROW_SCHEMA = schema.arrow(schema.EVENT)


def checked(name: str, value: Any) -> Any:
    """Returns the value as its column stores it. Raises `ValueError`."""
    if name in NUMBERS:
        minimum, maximum = NUMBERS[name]
        if type(value) is not int or not minimum <= value <= maximum:
            raise ValueError(f"{name} is out of range")
        return value
    if type(value) is not str or (name == "direction" and value not in _COUNTED):
        raise ValueError(f"{name} is not a string, or not a known direction")
    value = counted_name(value)
    if name == "instance_id" and not 1 <= len(value) <= INSTANCE_ID_CHARACTERS_MAX:
        raise ValueError("no instance has such an id")
    return value


def row_with_problem(partition: int, offset: int, raw: bytes | None, problem: str) -> tuple[Any, ...]:
    """Returns a row without an event, with the beginning of the record as detail."""
    beginning = counted_name((raw or b"")[:DETAIL_CHARACTERS_MAX].decode(errors="replace"))
    return (partition, offset, *[None] * len(FIELD_NAMES), problem, beginning)


def as_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Converts rows, at least one, to a record batch of `ARROW_SCHEMA`."""
    columns = [
        pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
