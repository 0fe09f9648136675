"""Columnar form of the records of one partition, between a consumer and files or tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from xxhash import xxh3_64_intdigest

Headers = Sequence[tuple[str, bytes | None]]

# Sums of hashes are taken modulo this, so that they fit into a bigint.
SUM_MODULUS: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records of one partition in columns: one list for each part of a record. All lists have the same length."""

    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def size_bytes(self) -> int:
        """Returns the bytes of keys, values and headers."""
        size_bytes = sum(map(len, filter(None, chain(self.keys, self.values))))
        for headers in filter(None, self.headers):
            size_bytes += sum(len(name) + len(value or b"") for name, value in headers)
        return size_bytes

    def append(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        self.offsets.append(offset)
        self.timestamps_ms.append(timestamp_ms)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)

    def extend(self, records: Records) -> None:
        self.offsets.extend(records.offsets)
        self.timestamps_ms.extend(records.timestamps_ms)
        self.keys.extend(records.keys)
        self.values.extend(records.values)
        self.headers.extend(records.headers)

    def select(self, rows: Iterable[int]) -> Records:
        """Returns the records with these indexes, in their order."""
        row_numbers = list(rows)
        return Records(
            offsets=[self.offsets[row] for row in row_numbers],
            timestamps_ms=[self.timestamps_ms[row] for row in row_numbers],
            keys=[self.keys[row] for row in row_numbers],
            values=[self.values[row] for row in row_numbers],
            headers=[self.headers[row] for row in row_numbers],
        )

    def content_sum(self) -> int:
        """Returns the sum of the hashes of the records, modulo `SUM_MODULUS`. It does not depend on their order."""
        rows = zip(self.offsets, self.timestamps_ms, self.keys, self.values, self.headers, strict=True)
        return sum([_hash_record(*row) for row in rows]) % SUM_MODULUS


def _hash_record(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns the XXH3 hash of the parts, each preceded by its length, so that the borders of parts count, too."""
    if key is not None and value is not None and not headers:
        return xxh3_64_intdigest(b"%d %d%d:%b%d:%b" % (offset, timestamp_ms, len(key), key, len(value), value))
    parts = [b"%d %d" % (offset, timestamp_ms), _length_prefixed(key), _length_prefixed(value)]
    for name, header in headers:
        parts += (_length_prefixed(name.encode()), _length_prefixed(header))
    return xxh3_64_intdigest(b"".join(parts))


def _length_prefixed(part: bytes | None) -> bytes:
    return b"-" if part is None else b"%d:%b" % (len(part), part)
