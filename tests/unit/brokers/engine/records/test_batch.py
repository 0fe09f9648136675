"""Batches built by Penstock, kafka-python and aiokafka, each read by the others (REC-20 to REC-24)."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords

from brokers.engine.records import batch as layout
from brokers.engine.records import compression
from brokers.engine.records.builder import Record, build_batch, read_records, recompress
from brokers.engine.records.validation import BatchRules, check_batch, check_shape

CODECS = list(compression.NAMES.values())
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
records = st.lists(
    st.builds(
        Record,
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        headers,
    ),
    min_size=1,
    max_size=30,
)


@given(records, st.sampled_from(CODECS), st.integers(0, 2**40))
def test_a_built_batch_is_read_back(wanted: list[Record], codec: int, base_offset: int) -> None:
    data = build_batch(wanted, codec=codec, base_offset=base_offset)
    assert read_records(data) == [(base_offset + at, record) for at, record in enumerate(wanted)]
    header = layout.read_header(data)
    assert header.crc == layout.checksum(data)
    assert header.size_bytes == len(data)
    assert header.max_timestamp == max(record.timestamp_ms for record in wanted)


@given(records, st.sampled_from(CODECS))
def test_kafka_python_reads_what_is_built(wanted: list[Record], codec: int) -> None:
    batches = MemoryRecords(bytes(build_batch(wanted, codec=codec)))
    theirs = batches.next_batch()
    assert theirs.validate_crc()
    result = [Record(r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert result == wanted


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AioBuilder])
@pytest.mark.parametrize("count", [1, 3, 5, 700])
def test_batches_of_other_clients_pass_and_read_the_same(builder: type, codec: int, count: int) -> None:
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    wanted = []
    for at in range(count):
        value = b"value %d " % at * (at % 7)
        record = Record(1_700_000_000_000 + at % 300, b"k%d" % at if at % 2 else None, value, (("h", b"x"),))
        wanted.append(record)
        assert made.append(at, record.timestamp_ms, record.key, record.value, headers=list(record.headers)) is not None
    data = memoryview(bytearray(made.build()))
    check_batch(data, check_shape(data, 9), BatchRules(), now_ms=0)
    assert [record for _, record in read_records(data)] == wanted


@given(records, st.sampled_from(CODECS), st.sampled_from(CODECS))
def test_another_codec_keeps_the_records(wanted: list[Record], before: int, after: int) -> None:
    data = recompress(build_batch(wanted, codec=before), after, 1 << 20)
    assert layout.read_header(data).codec == after
    assert layout.checksum(data) == layout.read_header(data).crc
    assert [record for _, record in read_records(data)] == wanted


def test_sequence_numbers_wrap_to_zero() -> None:
    assert layout.advance_sequence(2**31 - 1, 1) == 0
    assert layout.advance_sequence(2**31 - 2, 3) == 1
    assert layout.advance_sequence(-1, 5) == -1
