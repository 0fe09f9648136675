"""Version 2 of usage records: one record has up to `COUNTERS_PER_RECORD_MAX` counters of a report as columns.

The record is a JSON list: version, the fields of `ReportHead`, the names, and a column for each field of
`CounterValue`. A column is little-endian integers in base64: places in the list of names (16 bits), bytes and requests
(64 bits). Readers need no object for each counter, and readers of version 1 alone see that the version is newer.
"""

from __future__ import annotations

import json
import sys
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from brokers.contract.usage import COUNTED, CounterValue, ReportHead, UsageEvent

VERSION: Final = 2
COUNTERS_PER_RECORD_MAX: Final = 1_000
# Beginning of every record of this version.
BEGINNING: Final = b"[%d," % VERSION
# Fields whose columns have places in the list of names; the columns of the other fields have counts.
NAMED: Final = tuple(name for name in CounterValue._fields if name not in COUNTED)
assert CounterValue._fields == (*NAMED, *COUNTED)
PLACE_BYTES: Final = 2
COUNT_BYTES: Final = 8
_PLACE: Final = "H"
_COUNT: Final = "q"
_LENGTH: Final = 1 + len(ReportHead._fields) + 1 + len(CounterValue._fields)


class ReportColumns(NamedTuple):
    """Parsed record. Values of `head` and `names` are not validated; each of the `columns` has `counters` values."""

    head: list[Any]
    names: list[Any]
    counters: int
    columns: list[bytes]


def to_record(head: ReportHead, counters: Sequence[CounterValue]) -> bytes:
    """Returns the record of these counters, of which there must be at least one."""
    *name_columns, sizes, requests = zip(*counters, strict=True)
    positions = {name: position for position, name in enumerate(dict.fromkeys(chain(*name_columns)))}
    columns = [array(_PLACE, [positions[name] for name in names]) for names in name_columns]
    columns += [array(_COUNT, sizes), array(_COUNT, requests)]
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    texts = [b2a_base64(column, newline=False).decode() for column in columns]
    record = [VERSION, *head, list(positions), *texts]
    # UTF-8 cannot encode lone surrogates: they are replaced as in `counted_name`.
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def parse(raw: bytes) -> ReportColumns:
    """Splits a record into its columns. Raises ValueError for anything else than a record of this version."""
    record = json.loads(raw)
    if type(record) is not list or len(record) != _LENGTH or record[0] != VERSION:
        raise ValueError(f"no usage record of version {VERSION}")
    names = record[len(ReportHead._fields) + 1]
    texts = record[-len(CounterValue._fields) :]
    if type(names) is not list or not all(type(text) is str for text in texts):
        raise ValueError("a usage record without names or columns")
    columns = [a2b_base64(text, strict_mode=True) for text in texts]
    counters = len(columns[0]) // PLACE_BYTES
    if not 1 <= counters <= COUNTERS_PER_RECORD_MAX:
        raise ValueError(f"a usage record of {counters} counters")
    widths = (*[PLACE_BYTES] * len(NAMED), *[COUNT_BYTES] * len(COUNTED))
    if any(len(column) != counters * width for column, width in zip(columns, widths, strict=True)):
        raise ValueError("columns of a usage record differ in length")
    return ReportColumns(record[1 : len(ReportHead._fields) + 1], names, counters, columns)


def values_of(columns: ReportColumns) -> list[tuple[Any, ...]]:
    """Returns the counters row by row, in the order of `CounterValue`. A name of an invalid place is None."""
    numbers = [array(_PLACE, column) for column in columns.columns[: len(NAMED)]]
    counts = [array(_COUNT, column) for column in columns.columns[len(NAMED) :]]
    if sys.byteorder == "big":
        for column in (*numbers, *counts):
            column.byteswap()
    names = dict(enumerate(columns.names))
    name_columns = [[names.get(position) for position in column] for column in numbers]
    return list(zip(*name_columns, *counts, strict=True))


def events_in(raw: bytes) -> list[UsageEvent]:
    """Returns the events of a record of any known version. Raises ValueError."""
    if not raw.startswith(BEGINNING):
        return [UsageEvent.from_json(raw)]
    columns = parse(raw)
    head = ReportHead(*columns.head)
    return [UsageEvent.of(head, CounterValue(*values)) for values in values_of(columns)]
