"""Golden vectors of spec M (REC-65), read and written bit by bit."""

from __future__ import annotations

import pytest

from brokers.engine.records import batch as layout
from brokers.engine.records import control
from brokers.engine.records.batch import first_entry
from brokers.engine.records.builder import Record, build_batch, encode_record, read_records
from brokers.engine.wire.checksum import crc32, crc32c

VEC_2 = bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176")
VEC_3 = bytes.fromhex("0000000000000000000000185eaf63dc010000000174876e8000000000016b0000000176")
VEC_4 = bytes.fromhex(
    "00000000000000000000003a00000000021d1083af00000000000000000174876e800000000174876e8000"
    "ffffffffffffffffffffffffffff0000000110000000026b027600"
)
VEC_5 = bytes.fromhex(
    "00000000000000000000003900000000023331addf00000000000000000174876e800000000174876e8000"
    "ffffffffffffffffffffffffffff000000010e000000026b0100"
)
VEC_6 = bytes.fromhex(
    "000000000000000a0000004200000003028fd50c4300300000000000000174876e800000000174876e8000"
    "0000000000000fa00000ffffffff000000012000000008000000010c00000000000700"
)
STAMP_MS = 1_600_000_000_000


def test_the_checksums_have_their_published_check_values() -> None:
    """VEC-1."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32(b"123456789") == 0xCBF43926


@pytest.mark.parametrize(("vector", "magic"), [(VEC_2, 0), (VEC_3, 1)])
def test_old_messages_are_detected_by_size_and_magic(vector: bytes, magic: int) -> None:
    """VEC-2, VEC-3."""
    assert first_entry(vector) == (len(vector), magic)


def test_a_batch_of_one_record_is_built_and_read_bit_by_bit() -> None:
    """VEC-4."""
    record = Record(STAMP_MS, b"k", b"v")
    assert bytes(build_batch([record])) == VEC_4
    assert encode_record(record, 0, 0) == bytes.fromhex("10000000026b027600")
    assert read_records(VEC_4) == [(0, record)]
    assert layout.checksum(VEC_4) == 0x1D1083AF == layout.read_header(VEC_4).crc


def test_a_tombstone_is_built_and_read_bit_by_bit() -> None:
    """VEC-5."""
    record = Record(STAMP_MS, b"k", None)
    assert bytes(build_batch([record])) == VEC_5
    assert read_records(VEC_5) == [(0, record)]


def test_a_commit_marker_is_built_and_read_bit_by_bit() -> None:
    """VEC-6."""
    marker = control.end_marker(
        control.COMMIT,
        timestamp_ms=STAMP_MS,
        producer_id=4000,
        producer_epoch=0,
        coordinator_epoch=7,
    )
    layout.set_offset_and_epoch(marker, 10, 3)
    assert bytes(marker) == VEC_6
    header = layout.read_header(VEC_6)
    assert header.is_control
    assert header.is_transactional
    ((offset, record),) = read_records(VEC_6)
    assert offset == 10
    assert record.key is not None
    assert control.marker_kind(record.key) == control.COMMIT


def test_the_error_codes_named_below_the_protocol_are_the_protocols() -> None:
    from brokers.engine.protocol.errors import ErrorCode
    from brokers.engine.records import error_codes

    names = [name for name in vars(error_codes) if name.isupper()]
    assert len(names) > 20
    for name in names:
        assert ErrorCode[name] == getattr(error_codes, name)
