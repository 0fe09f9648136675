"""Control batches: the end markers of transactions (REC-27). One record, both flags, no sequence."""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch

ABORT: Final = 0
COMMIT: Final = 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


def end_marker(
    kind: int,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytearray:
    """The marker that ends a transaction, `kind` ABORT or COMMIT."""
    record = Record(timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=layout.TRANSACTIONAL | layout.CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_kind(key: bytes) -> int:
    """ABORT, COMMIT, or another number that readers ignore."""
    kind: int = _KEY.unpack_from(key)[1]
    return kind
