"""Keys and values of `__transaction_state` are Kafka's, byte for byte (TXN-2, TXN-19)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.coordinators.transactions.formats import (
    UndecodableRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.states import STORED, TransactionState

ONGOING = TransactionMetadata(
    transactional_id="tx",
    producer_id=4001,
    producer_epoch=7,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({("b", 0), ("a", 2), ("a", 1)}),
    last_update_ms=1_700_000_000_123,
    start_ms=1_700_000_000_000,
)
ONGOING_BYTES = bytes.fromhex(
    "0000 0000000000000fa1 0007 0000ea60 01"
    "00000002 0001 61 00000002 00000001 00000002 0001 62 00000001 00000000"
    "0000018bcfe5687b 0000018bcfe56800"
)
# The same in version 1: compact lengths, with tagged fields after each topic and at the end.
COMPACT_BYTES = bytes.fromhex(
    "0001 0000000000000fa1 0007 0000ea60 01"
    "03 02 61 03 00000001 00000002 00 02 62 02 00000000 01 05 02 aabb"
    "0000018bcfe5687b 0000018bcfe56800 00"
)

names = st.text(min_size=1, max_size=40)
metadata = st.builds(
    TransactionMetadata,
    transactional_id=names,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(sorted(STORED - {TransactionState.EMPTY})),
    partitions=st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=12),
    last_update_ms=st.integers(0, 2**62),
    start_ms=st.integers(-1, 2**62),
)


def test_a_key_is_a_version_and_the_id() -> None:
    assert encode_key("tx-é") == bytes.fromhex("0000 0005 74782dc3a9")
    assert decode_key(encode_key("tx-é")) == "tx-é"


def test_an_open_transaction_has_its_partitions_by_topic() -> None:
    assert encode_value(ONGOING) == ONGOING_BYTES
    assert decode_value("tx", ONGOING_BYTES) == ONGOING


def test_version_one_is_read_and_its_tagged_fields_are_left_alone() -> None:
    assert decode_value("tx", COMPACT_BYTES) == ONGOING


def test_partitions_are_null_only_while_nothing_was_ever_added() -> None:
    empty = ONGOING._replace(state=TransactionState.EMPTY, partitions=frozenset(), start_ms=-1)
    complete = ONGOING._replace(state=TransactionState.COMPLETE_ABORT, partitions=frozenset())

    assert encode_value(empty)[17:21] == b"\xff\xff\xff\xff"
    assert encode_value(complete)[17:21] == b"\0\0\0\0"
    assert decode_value("tx", encode_value(empty)) == empty
    assert decode_value("tx", encode_value(complete)) == complete


@given(metadata)
def test_a_written_record_is_read_back(one: TransactionMetadata) -> None:
    assert decode_value(one.transactional_id, encode_value(one)) == one
    assert decode_key(encode_key(one.transactional_id)) == one.transactional_id


@given(metadata, st.data())
def test_a_damaged_record_is_refused_and_never_crashes(one: TransactionMetadata, data: st.DataObject) -> None:
    raw = bytearray(encode_value(one))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(0, len(raw)))
    try:
        decode_value("tx", bytes(raw[:end]))
    except UndecodableRecord:
        return


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_of_kafkas_memory_are_not_loaded(state: TransactionState) -> None:
    raw = bytearray(ONGOING_BYTES)
    raw[16] = state
    with pytest.raises(UndecodableRecord, match=f"status {int(state)}"):
        decode_value("tx", bytes(raw))


@pytest.mark.parametrize("version", [-1, 2, 7])
def test_a_version_nobody_knows_is_not_guessed_at(version: int) -> None:
    with pytest.raises(UndecodableRecord, match=f"version {version}"):
        decode_value("tx", version.to_bytes(2, "big", signed=True) + ONGOING_BYTES[2:])


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\x01\0\x02tx", b"\0\0\0\x05tx", b"\0\0\xff\xff", b"\0\0\0\x01\xff"])
def test_a_key_that_is_none_is_refused(key: bytes) -> None:
    with pytest.raises(UndecodableRecord):
        decode_key(key)


def test_an_id_that_does_not_fit_into_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key("x" * 32_768)


def test_states_have_kafkas_numbers_and_only_some_are_written() -> None:
    """TXN-3, TXN-19."""
    assert [state.name for state in TransactionState] == [
        "EMPTY", "ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT",
        "COMPLETE_COMMIT", "COMPLETE_ABORT", "DEAD", "PREPARE_EPOCH_FENCE",
    ]  # fmt: skip
    assert [state.value for state in TransactionState] == list(range(8))
    assert sorted(STORED) == [0, 1, 2, 3, 4, 5]
