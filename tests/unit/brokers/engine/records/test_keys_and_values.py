"""The fast reader of a batch returns the same keys and values as the full one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.compression import GZIP, NONE, Undecodable
from brokers.engine.records.keys_and_values import read_keys_and_values
from brokers.engine.records.walk import Malformed

contents = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    st.integers(0, 1 << 50),
    contents,
    contents,
    st.lists(st.tuples(st.text(max_size=5), contents), max_size=2).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 1 << 60), st.sampled_from((NONE, GZIP)))
def test_the_pairs_are_those_of_the_records(written: list[Record], base_offset: int, codec: int) -> None:
    data = bytes(build_batch(written, base_offset=base_offset, codec=codec))

    assert read_keys_and_values(data) == [(offset, record.key, record.value) for offset, record in read_records(data)]


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_coordinator_reads_nothing_from_a_damaged_batch(written: list[Record], data: st.DataObject) -> None:
    """Otherwise a group would be given an offset that it never committed."""
    batch = build_batch(written)
    at = data.draw(st.integers(layout.CRC_AT, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Malformed, Undecodable)):
        read_keys_and_values(bytes(batch))


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_damaged_records_under_a_good_checksum_are_refused_or_read_but_never_past_their_end(
    written: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(written)
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    layout.write_crc(batch)

    try:
        pairs = read_keys_and_values(bytes(batch))
    except Malformed:
        return
    assert sum(len(key or b"") + len(value or b"") for _, key, value in pairs) <= len(batch)


def test_a_batch_that_ends_too_early_or_too_late_is_refused() -> None:
    batch = build_batch([Record(0, b"k", b"v"), Record(0, b"k", b"w")])
    for count in (1, 3):
        batch[57:61] = count.to_bytes(4, "big")
        layout.write_crc(batch)
        with pytest.raises(Malformed):
            read_keys_and_values(bytes(batch))
