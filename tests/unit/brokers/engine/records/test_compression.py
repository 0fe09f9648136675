"""The four compression codecs: round trips, truncated data, and decompression bombs (REC-3, REC-4)."""

from __future__ import annotations

import contextlib
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python

from brokers.engine.records import compression
from brokers.engine.records.compression import (
    DECOMPRESSED_PIECE_BYTES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Oversized,
    Undecodable,
    compress,
    compress_within,
    declares_at_most,
    decompress,
)

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
    assert decompress(codec, memoryview(compress(codec, data))) == data
    assert decompress(codec, ENCODERS[codec](data)) == data
    assert DECODERS[codec](compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"x" * 200_000, bytes(range(256)) * 300])
def test_every_truncation_is_detected(codec: int, data: bytes) -> None:
    recompressed = compress(codec, data)
    boundaries = {len(compression.XERIAL_HEADER)}
    at = len(compression.XERIAL_HEADER)
    while codec == SNAPPY and at < len(recompressed):  # a cut between two snappy blocks leaves a shorter, valid stream
        at += 4 + int.from_bytes(recompressed[at : at + 4], "big")
        boundaries.add(at)
    for cut in range(0, len(recompressed), max(1, len(recompressed) // 300)):
        if codec == SNAPPY and cut in boundaries:
            continue
        with pytest.raises(Undecodable):
            decompress(codec, recompressed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@given(rubbish=st.binary(max_size=300))
def test_random_bytes_raise_only_the_declared_errors(codec: int, rubbish: bytes) -> None:
    with contextlib.suppress(Undecodable, Oversized):
        decompress(codec, rubbish)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_is_decompressed(codec: int) -> None:
    recompressed = compress(codec, bytes(3_000_000))
    with pytest.raises(Oversized):
        decompress(codec, recompressed, bytes_max=2_999_999)
    assert len(decompress(codec, recompressed, bytes_max=3_000_000)) == 3_000_000


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("data", [b"", b"x", bytes(3_000_000), random.Random(5).randbytes(700_000)])
def test_compression_within_a_limit_gives_the_same_result_or_is_refused(codec: int, data: bytes) -> None:
    """REC-32."""
    recompressed = compress(codec, data)
    assert compress_within(codec, data, len(recompressed)) == recompressed
    with pytest.raises(Oversized):
        compress_within(codec, data, len(recompressed) - 1)


def test_gzip_stops_where_the_limit_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """REC-32, REC-47: recompressing 32 MB that a producer sent in one zstd batch would block all tenants for a
    second.
    """
    met: list[int] = []

    class Counting:
        def __init__(self, packer: Any) -> None:
            self.packer = packer

        def compress(self, piece: memoryview) -> bytes:
            met.append(len(piece))
            return bytes(self.packer.compress(piece))

    real = zlib.compressobj
    monkeypatch.setattr(zlib, "compressobj", lambda **given: Counting(real(**given)))
    with pytest.raises(Oversized):
        compress_within(GZIP, random.Random(5).randbytes(1_000_000) * 30, 1_000_000)
    assert sum(met) < 2_000_000


def test_a_zstd_frame_without_a_declared_size_is_bounded_too() -> None:
    import zstandard

    packer = zstandard.ZstdCompressor(level=3).compressobj()
    recompressed = packer.compress(bytes(5_000_000)) + packer.flush()
    assert len(decompress(ZSTD, recompressed)) == 5_000_000
    with pytest.raises(Oversized):
        decompress(ZSTD, recompressed, bytes_max=4_999_999)
    for cut in range(0, len(recompressed), 7):
        with pytest.raises(Undecodable):
            decompress(ZSTD, recompressed[:cut])


def test_zstd_data_above_the_limit_is_oversized_however_well_it_is_compressed() -> None:
    """REC-3: the client splits a batch that is too large, and sends a corrupt one again for ever."""
    import zstandard

    for data in (bytes(5_000_000), random.Random(5).randbytes(500_000) * 2, random.Random(5).randbytes(1_000_000)):
        packer = zstandard.ZstdCompressor(level=3).compressobj()
        packed = packer.compress(data) + packer.flush()
        for bytes_max in (1_000, 100_000, len(data) - 1):
            with pytest.raises(Oversized):
                decompress(ZSTD, packed, bytes_max)
        assert decompress(ZSTD, packed, len(data)) == data
        with pytest.raises(Undecodable):
            decompress(ZSTD, packed[:-1], len(data))


@pytest.mark.parametrize(
    "size_bytes", [DECOMPRESSED_PIECE_BYTES + more for more in (-1, 0, 1, 2 * DECOMPRESSED_PIECE_BYTES)]
)
@pytest.mark.parametrize("codec", CODECS)
def test_data_of_several_pieces_is_whole_bounded_and_not_cut_off(codec: int, size_bytes: int) -> None:
    for data in (bytes(size_bytes), random.Random(size_bytes).randbytes(size_bytes)):
        packed = compress(codec, data)
        assert decompress(codec, packed, size_bytes) == data
        with pytest.raises(Oversized):
            decompress(codec, packed, size_bytes - 1)
        with pytest.raises(Undecodable):
            decompress(codec, packed[:-1], size_bytes)


@pytest.mark.parametrize("level", [19, 20, 21, 22])
def test_every_level_of_zstd_may_be_streamed(level: int) -> None:
    """REC-3: the level alone determines the window size; `compression.zstd.level` goes up to 22."""
    import zstandard

    parameters = zstandard.ZstdCompressionParameters(window_log={19: 23, 20: 25, 21: 26, 22: 27}[level])
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    recompressed = packer.compress(b"some records" * 1_000) + packer.flush()
    assert decompress(ZSTD, recompressed) == b"some records" * 1_000


@given(data=st.binary(max_size=5_000), copies=st.integers(1, 200), limit=st.sampled_from([1_000, 65_536, 262_144]))
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_data_that_declares_a_small_size_has_one(codec: int, data: bytes, copies: int, limit: int) -> None:
    recompressed = memoryview(compress(codec, data * copies))
    if declares_at_most(codec, recompressed, limit):
        assert len(decompress(codec, recompressed, limit)) <= limit
    elif codec in (GZIP, ZSTD):
        assert len(data) * copies > limit


@given(data=st.binary(max_size=200))
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_declared_size_of_damaged_data_raises_no_error(codec: int, data: bytes) -> None:
    assert declares_at_most(codec, memoryview(data), 1_000) in (True, False)


def test_a_gzip_of_members_that_declares_little_is_not_inflated_further_than_that() -> None:
    liar = compress(GZIP, bytes(1_000_000)) + compress(GZIP, b"x")
    assert declares_at_most(GZIP, memoryview(liar), 65_536)
    with pytest.raises(Oversized):
        decompress(GZIP, liar, 65_536)
