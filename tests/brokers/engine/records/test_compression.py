"""The four codecs: round trips, torn data, and bombs (REC-3, REC-4)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python

from brokers.engine.records import compression
from brokers.engine.records.compression import GZIP, LZ4, SNAPPY, ZSTD, Oversized, Undecodable, deflate, inflate

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
ENCODERS = {
    GZIP: kafka_python.gzip_encode,
    SNAPPY: kafka_python.snappy_encode,
    LZ4: kafka_python.lz4_encode,
    ZSTD: kafka_python.zstd_encode,
}
DECODERS = {
    GZIP: kafka_python.gzip_decode,
    SNAPPY: kafka_python.snappy_decode,
    LZ4: kafka_python.lz4_decode,
    ZSTD: kafka_python.zstd_decode,
}


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(min_size=1, max_size=2_000).map(lambda data: data * 50))
def test_both_ends_agree_with_kafka_python(codec: int, data: bytes) -> None:
    assert inflate(codec, memoryview(deflate(codec, data))) == data
    assert inflate(codec, ENCODERS[codec](data)) == data
    assert DECODERS[codec](deflate(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"x" * 200_000, bytes(range(256)) * 300])
def test_every_cut_is_noticed(codec: int, data: bytes) -> None:
    packed = deflate(codec, data)
    boundaries = {len(compression.XERIAL_HEADER)}
    at = len(compression.XERIAL_HEADER)
    while codec == SNAPPY and at < len(packed):  # a cut between two snappy blocks is a shorter, valid stream
        at += 4 + int.from_bytes(packed[at : at + 4], "big")
        boundaries.add(at)
    for cut in range(0, len(packed), max(1, len(packed) // 300)):
        if codec == SNAPPY and cut in boundaries:
            continue
        with pytest.raises(Undecodable):
            inflate(codec, packed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@given(rubbish=st.binary(max_size=300))
def test_rubbish_raises_nothing_else(codec: int, rubbish: bytes) -> None:
    with contextlib.suppress(Undecodable, Oversized):
        inflate(codec, rubbish)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_unfolds(codec: int) -> None:
    packed = deflate(codec, bytes(3_000_000))
    with pytest.raises(Oversized):
        inflate(codec, packed, bytes_max=2_999_999)
    assert len(inflate(codec, packed, bytes_max=3_000_000)) == 3_000_000


def test_a_zstd_frame_without_a_declared_size_is_bounded_too() -> None:
    import zstandard

    packer = zstandard.ZstdCompressor(level=3).compressobj()
    packed = packer.compress(bytes(5_000_000)) + packer.flush()
    assert len(inflate(ZSTD, packed)) == 5_000_000
    with pytest.raises(Oversized):
        inflate(ZSTD, packed, bytes_max=4_999_999)
    for cut in range(0, len(packed), 7):
        with pytest.raises(Undecodable):
            inflate(ZSTD, packed[:cut])
