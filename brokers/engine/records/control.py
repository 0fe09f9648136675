"""Control batches: end markers of transactions (REC-27), with one record, the flags for transactional and control
batches, and no sequence.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, records_block
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.walk import Malformed, walk

ABORT: Final = 0
COMMIT: Final = 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class EndMarker(NamedTuple):
    """An end marker; `kind` is ABORT or COMMIT."""

    kind: int
    coordinator_epoch: int


def end_marker(
    kind: int,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bytearray:
    """Returns a control batch that ends a transaction; `kind` is ABORT or COMMIT."""
    record = Record(timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        attributes=layout.TRANSACTIONAL | layout.CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def marker_kind(key: bytes) -> int:
    """Returns the marker type: ABORT, COMMIT, or another number that readers ignore."""
    kind: int = _KEY.unpack_from(key)[1]
    return kind


def read_marker(batch: bytes | memoryview) -> EndMarker | None:
    """Returns the end marker in the control batch that fills `batch`.

    Returns None for another kind of control batch, or one whose record was removed by compaction.
    """
    header = layout.read_header(batch)
    if not header.is_control or not header.record_count:
        return None
    try:
        block = records_block(batch)
        record = next(walk(block, header.record_count))
    except (Malformed, Undecodable, Oversized):
        return None
    key, value = record.key, record.value
    if key is None or value is None or key[1] - key[0] < _KEY.size or value[1] - value[0] < _VALUE.size:
        return None
    kind = marker_kind(block[key[0] : key[1]])
    if kind not in (ABORT, COMMIT):
        return None
    return EndMarker(kind, int(_VALUE.unpack_from(block, value[0])[1]))
