"""Rejected batches with their error codes and log start offsets (spec B.7 and observed-3.9.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch, encode_record, read_records, recompress
from brokers.engine.records.compression import GZIP, ZSTD
from brokers.engine.records.control import COMMIT, end_marker
from brokers.engine.records.rejections import RECORD_ERRORS_MAX, BatchRejected, missing_key_rejection
from brokers.engine.records.validation import BatchRules, check_batch, check_shape, claims_transaction
from tests.unit.brokers.engine.records.test_vectors import VEC_2, VEC_3

NOW_MS = 1_700_000_000_000


def three(**more: int) -> bytearray:
    return build_batch([Record(NOW_MS, b"k%d" % at, b"v" * 10) for at in range(3)], **more)


def check(data: bytes | bytearray, rules: BatchRules | None = None, version: int = 9) -> memoryview:
    view = memoryview(bytearray(data))
    return check_batch(view, check_shape(view, version), rules or BatchRules(), NOW_MS)[0]


def refusal(data: bytes | bytearray, rules: BatchRules | None = None, version: int = 9) -> tuple[int, bool]:
    with pytest.raises(BatchRejected) as caught:
        check(data, rules, version)
    return caught.value.code, caught.value.omits_log_start


def patched(data: bytearray, at: int, value: bytes) -> bytearray:
    data = bytearray(data)
    data[at : at + len(value)] = value
    layout.write_crc(data)
    return data


CLAIMING = patched(three(), 21, b"\x00\x08")


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 4, 300])
@pytest.mark.parametrize(
    ("codec", "to"), [(0, None), (GZIP, None), (GZIP, GZIP), (ZSTD, 0), (GZIP, ZSTD), (0, GZIP), (0, 0)]
)
def test_compressed_records_have_consecutive_offset_deltas(
    codec: int, to: int | None, count: int, kept: int, compacted: bool
) -> None:
    """Kafka renumbers records when it recompresses the batch, and fails if the codec is unchanged
    (UNKNOWN_SERVER_ERROR).

    It stores uncompressed batches unchanged.
    """
    records = [Record(NOW_MS + at, b"k%d" % at, b"v" * at, (("h", None),)) for at in range(count)]
    deltas = [at if at < kept else at * 5_000 - 7 for at in range(count)]
    block = b"".join(encode_record(record, at, 0) for record, at in zip(records, deltas, strict=True))
    plain = build_batch(records)[: layout.HEADER_BYTES] + block
    length = len(plain) - layout.LOG_OVERHEAD_BYTES
    data = patched(plain, 8, length.to_bytes(4, "big"))
    if codec:
        data = recompress(data, codec, 1 << 20)
    rules = BatchRules(compacted=compacted, codec=to)
    if codec and codec == (codec if to is None else to) and deltas != list(range(count)):
        assert refusal(data, rules) == (error_codes.INVALID_RECORD, False)
        return
    passed = bytes(check(data, rules))
    header = layout.read_header(passed)
    is_rebuilt = bool(codec or to)  # with an unchanged codec the batch is stored unchanged
    wanted = list(range(count)) if is_rebuilt else deltas
    assert [offset for offset, _ in read_records(passed)] == wanted
    assert [(record.key, record.value, record.headers) for _, record in read_records(passed)] == [
        record[1:] for record in records
    ]
    assert (header.crc, header.codec) == (layout.checksum(passed), codec if to is None else to)
    assert (header.record_count, header.last_offset_delta) == (count, count - 1)


def test_a_valid_batch_passes_unchanged() -> None:
    assert bytes(check(three())) == bytes(three())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", error_codes.INVALID_RECORD),
        (b"\0" * 16, error_codes.INVALID_RECORD),
        (VEC_2, error_codes.INVALID_RECORD),
        (VEC_3, error_codes.INVALID_RECORD),
        (bytes(three()) * 2, error_codes.INVALID_RECORD),
        (bytes(three())[:-1], error_codes.INVALID_RECORD),
        (bytes(8) + (13).to_bytes(4, "big") + bytes(20), error_codes.CORRUPT_MESSAGE),
        (bytes(8) + (60).to_bytes(4, "big") + bytes(4) + b"\x03" + bytes(60), error_codes.CORRUPT_MESSAGE),
        (bytes(8) + (-5).to_bytes(4, "big", signed=True) + bytes(60), error_codes.CORRUPT_MESSAGE),
        (bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(15), error_codes.CORRUPT_MESSAGE),
    ],
    ids=[
        "empty",
        "short",
        "v0",
        "v1",
        "two",
        "cut",
        "size below minimum",
        "magic 3",
        "negative size",
        "below a header",
    ],
)
def test_a_wrong_shape_is_refused_without_a_log_start_offset(data: bytes, code: int) -> None:
    """REC-42, REC-48."""
    assert refusal(data) == (code, True)


def test_a_cut_entry_after_the_batch_is_trimmed() -> None:
    """REC-60."""
    assert bytes(check(bytes(three()) + bytes(three())[:30])) == bytes(three())


def test_zstd_needs_produce_7() -> None:
    """REC-43."""
    assert refusal(three(codec=ZSTD), version=6) == (error_codes.UNSUPPORTED_COMPRESSION_TYPE, True)
    check(three(codec=ZSTD), version=7)


@given(st.integers(21, len(three()) - 1), st.integers(0, 7))
def test_any_flipped_bit_under_the_checksum_is_corruption(at: int, bit: int) -> None:
    """REC-48."""
    data = three()
    data[at] ^= 1 << bit
    assert refusal(data) == (error_codes.CORRUPT_MESSAGE, True)


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, (1).to_bytes(8, "big")),  # REC-46: base offset
        (23, (1).to_bytes(4, "big")),  # REC-50: last offset delta against the count
        (57, (2).to_bytes(4, "big")),  # REC-50: count against the last offset delta
        (57, (0).to_bytes(4, "big")),
        (57, (-1).to_bytes(4, "big", signed=True)),
        (21, b"\x00\x20"),  # REC-51: control
        (43, (5).to_bytes(8, "big")),  # REC-52: a producer id without a sequence
    ],
)
def test_a_wrong_header_is_refused(at: int, value: bytes, codec: int) -> None:
    assert refusal(patched(three(codec=codec), at, value)) == (error_codes.INVALID_RECORD, False)


@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("lie", [-1, 1])
def test_a_count_that_contradicts_the_records_is_refused(count: int, codec: int, lie: int) -> None:
    """REC-24: both fields have the same wrong value, so only the records can contradict it."""
    data = build_batch([Record(NOW_MS, None, b"v" * 9)] * count, codec=codec)
    data = patched(data, 23, (count + lie - 1).to_bytes(4, "big"))
    data = patched(data, 57, (count + lie).to_bytes(4, "big"))
    assert refusal(data) == (error_codes.INVALID_RECORD, False)


def test_clients_may_not_write_markers() -> None:
    marker = end_marker(COMMIT, timestamp_ms=0, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    assert refusal(marker) == (error_codes.INVALID_RECORD, False)


def test_an_unknown_codec_and_corrupt_data_get_different_errors() -> None:
    """REC-3: deliberate differences from Kafka, which returns -1."""
    assert refusal(patched(three(), 21, b"\x00\x05")) == (error_codes.INVALID_RECORD, True)
    assert refusal(patched(three(), 21, b"\x00\x01")) == (error_codes.CORRUPT_MESSAGE, True)


def test_a_batch_over_the_limit_is_too_large() -> None:
    """REC-47, REC-58."""
    size = len(three())
    check(three(), BatchRules(batch_bytes_max=size))
    assert refusal(three(), BatchRules(batch_bytes_max=size - 1)) == (error_codes.MESSAGE_TOO_LARGE, True)
    assert refusal(three(), BatchRules(segment_bytes=size - 1)) == (error_codes.RECORD_LIST_TOO_LARGE, True)


def test_a_compacted_topic_requires_keys_and_names_the_records_without() -> None:
    """REC-55, REC-61."""
    data = build_batch([Record(NOW_MS, b"k" if at != 1 else None, b"v") for at in range(6)])
    with pytest.raises(BatchRejected) as caught:
        check(data, BatchRules(compacted=True))
    assert (caught.value.code, caught.value.omits_log_start) == (error_codes.INVALID_RECORD, False)
    assert [index for index, _ in caught.value.record_errors] == [1]
    assert "1 record errors in total" in (caught.value.message or "")


@pytest.mark.parametrize(("offset_ms", "fine"), [(-1_001, False), (-1_000, True), (500, True), (501, False)])
def test_timestamps_out_of_bounds_are_refused(offset_ms: int, fine: bool) -> None:
    """REC-56."""
    rules = BatchRules(timestamp_before_ms_max=1_000, timestamp_after_ms_max=500)
    data = build_batch([Record(NOW_MS, None, b"")] * 5 + [Record(NOW_MS + offset_ms, None, b"")])
    if fine:
        check(data, rules)
    else:
        assert refusal(data, rules) == (error_codes.INVALID_TIMESTAMP, False)
    check(build_batch([Record(-1, None, b"")]), rules)


def test_log_append_time_stamps_the_batch() -> None:
    data = check(three(), BatchRules(log_append_time=True))
    assert {record.timestamp_ms for _, record in read_records(data)} == {NOW_MS}
    assert layout.checksum(data) == layout.read_header(data).crc


def test_a_claim_of_log_append_time_is_stored_as_create_time() -> None:
    """REC-57 as observed."""
    assert bytes(check(CLAIMING)) == bytes(three())


def test_a_wrong_maximum_timestamp_of_a_small_batch_is_corrected() -> None:
    data = check(patched(three(), 35, (NOW_MS + 10**9).to_bytes(8, "big")))
    assert layout.read_header(data).max_timestamp == NOW_MS
    assert layout.checksum(data) == layout.read_header(data).crc


def test_a_maximum_of_negative_timestamps_is_stored_as_none() -> None:
    """REC-6, REC-21: as Kafka stores them; the timestamps of the records are unchanged."""
    data = build_batch([Record(-5, b"k", b"v"), Record(-7, b"k", b"v")])
    checked = check(data)
    assert layout.read_header(checked).max_timestamp == -1
    assert [record.timestamp_ms for _, record in read_records(checked)] == [-5, -7]


def test_a_forced_codec_is_applied() -> None:
    """REC-32."""
    data = check(three(), BatchRules(codec=ZSTD))
    assert layout.read_header(data).codec == ZSTD
    assert [record.key for _, record in read_records(data)] == [b"k0", b"k1", b"k2"]


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        pytest.param(CLAIMING, BatchRules(log_append_time=True), id="the broker gives the time"),
        pytest.param(patched(CLAIMING, 35, b"\xff" * 8), BatchRules(), id="there is no time"),
    ],
)
def test_a_claim_of_log_append_time_is_refused_where_it_would_apply(data: bytearray, rules: BatchRules) -> None:
    with pytest.raises(BatchRejected) as caught:
        check(data, rules)
    assert caught.value.code == error_codes.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]


def test_the_number_of_record_errors_is_limited() -> None:
    refused = missing_key_rejection(list(range(RECORD_ERRORS_MAX * 3)))
    assert len(refused.record_errors) == RECORD_ERRORS_MAX
    assert f"due to {RECORD_ERRORS_MAX * 3} record errors" in (refused.message or "")


def test_a_transactional_claim_is_seen_before_the_append() -> None:
    """REC-44."""
    assert claims_transaction(memoryview(three(attributes=layout.TRANSACTIONAL)))
    assert not claims_transaction(memoryview(three()))
    assert not claims_transaction(memoryview(b""))
