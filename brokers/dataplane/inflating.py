"""Decompression of record data within a limit, so that a small batch cannot fill the memory of a web process. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam
import lz4.frame
import xxhash
import zstandard

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
GZIP_WBITS: Final = 31  # zlib's number for the format of gzip
GZIP_MEMBERS_MAX: Final = 64
ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
ZSTD_STEP_BYTES: Final = 1 << 20
LZ4_HEADER_BYTES: Final = 7  # without the length of the content
LZ4_CONTENT_LENGTH_FLAG: Final = 0x08
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
# Bounds the number of blocks: writers use blocks of at least a kilobyte.
SNAPPY_BLOCK_BYTES_MIN: Final = 1_024
_LENGTH = struct.Struct(">i")


class DamagedBatch(ValueError):
    """The bytes are invalid for their codec."""


class TooLarge(ValueError):
    """The decompressed data exceeds the limit, or has more gzip members or snappy blocks than a writer makes."""


def inflate(codec: int, data: memoryview, bytes_max: int) -> bytes:
    """Returns the decompressed data. Raises `DamagedBatch` and `TooLarge`."""
    inflater = _INFLATERS.get(codec)
    if inflater is None:
        raise DamagedBatch(f"there is no codec {codec}")
    try:
        return inflater(data, bytes_max)
    except (DamagedBatch, TooLarge):
        raise
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, struct.error, RuntimeError, ValueError,
            EOFError, OSError) as error:  # fmt: skip
        raise DamagedBatch(f"{type(error).__name__}: {error}") from None


def _gzip(data: memoryview, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    total, remaining = 0, bytes(data)
    while remaining:
        member = zlib.decompressobj(wbits=GZIP_WBITS)
        part = member.decompress(remaining, bytes_max - total + 1)
        total += len(part)
        if total > bytes_max or len(parts) >= GZIP_MEMBERS_MAX:
            raise TooLarge("gzip")
        if not member.eof:
            raise DamagedBatch("gzip data ends too early")
        parts.append(part)
        remaining = member.unused_data
    return b"".join(parts)


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, bytes_max)
    decompressed = bytearray()
    position, blocks = XERIAL_HEADER_BYTES, 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        blocks += 1
        if length < 0 or position + length > len(data):
            raise DamagedBatch("a block of snappy is cut off")
        if blocks > bytes_max // SNAPPY_BLOCK_BYTES_MIN:
            raise TooLarge("snappy")
        decompressed += _snappy_block(data[position : position + length], bytes_max - len(decompressed))
        position += length
    return bytes(decompressed)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise TooLarge("snappy")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: memoryview, bytes_max: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    decompressed: bytes = frame.decompress(data, max_length=bytes_max + 1)
    if len(decompressed) > bytes_max:
        raise TooLarge("lz4")
    if not frame.eof:
        raise DamagedBatch("an lz4 frame ends too early")
    return decompressed


def with_corrected_checksum(frame: bytes) -> bytes:
    """Corrects an lz4 frame of message format 0, whose writers computed the header checksum over too many bytes."""
    if len(frame) < LZ4_HEADER_BYTES:
        return frame
    position = LZ4_HEADER_BYTES - 1 + (8 if frame[4] & LZ4_CONTENT_LENGTH_FLAG else 0)
    checksum = xxhash.xxh32(frame[4:position]).intdigest() >> 8 & 0xFF
    return frame[:position] + bytes([checksum]) + frame[position + 1 :]


def _zstd(data: memoryview, bytes_max: int) -> bytes:
    decompressed = bytearray()
    with zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).stream_reader(data) as reader:
        while part := reader.read(ZSTD_STEP_BYTES):
            decompressed += part
            if len(decompressed) > bytes_max:
                raise TooLarge("zstd")
    return bytes(decompressed)


_INFLATERS: Final[dict[int, Callable[[Any, int], bytes]]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
