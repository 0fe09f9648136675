"""The four compression codecs of a record batch (REC-3, REC-4), with bounded output against decompression bombs.

Data that cannot be decompressed raises `Undecodable`; data that decompresses to more than `DECOMPRESSED_BYTES_MAX`
raises `Oversized`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import cramjam
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

# 32 times the default max.message.bytes: sufficient for real batches, and decompressed in 10 to 40 ms.
DECOMPRESSED_BYTES_MAX: Final = 32 * 1024 * 1024

# Streaming writers declare no size; a buffer of this estimate is sufficient for nearly all of their data.
ZSTD_GUESS_BYTES_MIN: Final = 128 * 1024
ZSTD_GUESS_RATIO: Final = 16
GZIP_LEVEL: Final = 6
GZIP_WBITS: Final = 31  # the window size argument of zlib for the gzip format
# Number of input bytes after which the size of gzip's output is checked.
GZIP_CHUNK_BYTES: Final = 256 * 1024
# Decompressors copy their output while they hold the interpreter's lock, for which the event loop then waits: 10 to 20
# ms for 32 MB. `bytes.join` releases the lock.
DECOMPRESSED_PIECE_BYTES: Final = 1024 * 1024
# The largest window that other readers accept by default: producers at levels 20 to 22 declare it for any amount of
# data. Only as much memory of the window is used as there is output.
ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024

# A gzip member or snappy block takes time even without output. Writers use a single gzip member, and snappy blocks of 1
# KB or more.
GZIP_MEMBERS_MAX: Final = 64
# Size that each snappy block is at least counted as.
SNAPPY_BLOCK_CHARGE_BYTES_MIN: Final = 1024
SNAPPY_BLOCKS_MAX: Final = DECOMPRESSED_BYTES_MAX // SNAPPY_BLOCK_CHARGE_BYTES_MIN

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + Struct(">ii").pack(1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH = Struct(">i")
_GZIP_LENGTH: Final = Struct("<I")  # at the end of a member
_LZ4_LENGTH: Final = Struct("<I")  # before each block
_LZ4_UNCOMPRESSED: Final = 0x8000_0000
_LZ4_HEADER_BYTES: Final = 7  # without the content length, which Kafka's clients do not write
_LZ4_CONTENT_LENGTH: Final = 0x08
_LZ4_CHECKSUMS: Final = 0x10
_LZ4_BLOCK_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}


class Undecodable(ValueError):
    """The data is not valid for its codec."""


class Oversized(ValueError):
    """The data would decompress to more than the limit."""


def decompress(codec: int, data: bytes | memoryview, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Returns the decompressed data of `codec` (1 to 4). Raises Undecodable or Oversized."""
    try:
        return _DECOMPRESSORS[codec](data, bytes_max)
    except (Undecodable, Oversized):
        raise
    except (
        zlib.error,
        EOFError,
        RuntimeError,
        ValueError,
        OSError,
        zstandard.ZstdError,
        cramjam.DecompressionError,
    ) as error:
        raise Undecodable(f"{type(error).__name__}: {error}") from None


def declares_at_most(codec: int, data: memoryview, bytes_max: int) -> bool:
    """True if the data declares that it decompresses to at most `bytes_max`; False if it declares no size.

    Only lengths are read. A gzip length covers only the last member, so `decompress` must be called with the same
    limit. Also True for damaged data, which `decompress` detects.
    """
    if len(data) > bytes_max or codec not in _DECLARED_SIZE_READERS:
        return False
    try:
        return _DECLARED_SIZE_READERS[codec](data, bytes_max) <= bytes_max
    except (ValueError, IndexError, struct_error, zstandard.ZstdError, cramjam.DecompressionError):
        return True


def _declared_gzip_bytes(data: memoryview, _bytes_max: int) -> int:
    return int(_GZIP_LENGTH.unpack_from(data, len(data) - 4)[0])


def _declared_snappy_bytes(data: memoryview, bytes_max: int) -> int:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_len(data))
    total, position = 0, len(XERIAL_HEADER)
    while position < len(data) and total <= bytes_max:
        (length,) = _LENGTH.unpack_from(data, position)
        position += 4
        # A block takes time even if it is nearly empty.
        total += max(
            int(cramjam.snappy.decompress_raw_len(data[position : position + length])), SNAPPY_BLOCK_CHARGE_BYTES_MIN
        )
        position += max(length, 0)
    return total


def _declared_lz4_bytes(data: memoryview, bytes_max: int) -> int:
    """Returns an upper bound of the decompressed size: number of blocks times the maximum block size."""
    flags, block_bytes = data[4], _LZ4_BLOCK_BYTES.get(data[5] >> 4 & 7, bytes_max + 1)
    total, position = 0, _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_LENGTH else 0)
    while total <= bytes_max:
        (length,) = _LZ4_LENGTH.unpack_from(data, position)
        if length == 0:
            break
        position += 4 + (length & ~_LZ4_UNCOMPRESSED) + (4 if flags & _LZ4_CHECKSUMS else 0)
        total += block_bytes
    return total


def _declared_zstd_bytes(data: memoryview, bytes_max: int) -> int:
    declared_bytes = int(zstandard.get_frame_parameters(data).content_size)
    is_unknown = declared_bytes in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
    return bytes_max + 1 if is_unknown else declared_bytes


def compress(codec: int, data: bytes) -> bytes:
    """Returns `data` compressed by `codec` (0 to 4), readable by any Kafka client."""
    return data if codec == NONE else _COMPRESSORS[codec](data)


def compress_within(codec: int, data: bytes, bytes_max: int) -> bytes:
    """Returns `data` compressed by `codec`. Raises Oversized if the result is larger than `bytes_max`.

    Gzip, which takes ten times as long as the others, stops soon after its output exceeds the limit.
    """
    if codec != GZIP:
        compressed = compress(codec, data)
    else:
        packer = zlib.compressobj(level=GZIP_LEVEL, wbits=GZIP_WBITS)
        out = bytearray()
        for start in range(0, len(data), GZIP_CHUNK_BYTES):
            out += packer.compress(memoryview(data)[start : start + GZIP_CHUNK_BYTES])
            if len(out) > bytes_max:
                raise Oversized("gzip")
        compressed = bytes(out) + packer.flush()
    if len(compressed) > bytes_max:
        raise Oversized("the recompressed batch exceeds the limit")
    return compressed


def count_snappy_blocks(data: bytes | memoryview) -> int:
    """Returns the number of blocks in valid snappy data."""
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return 1
    blocks, position = 0, len(XERIAL_HEADER)
    while position < len(view):
        position += 4 + int(_LENGTH.unpack_from(view, position)[0])
        blocks += 1
    return blocks


def _decompress_gzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    total = members = 0
    remaining: bytes | memoryview = data
    while len(remaining):
        if members >= GZIP_MEMBERS_MAX:
            raise Oversized("gzip")
        members += 1
        member = zlib.decompressobj(wbits=GZIP_WBITS)
        while not member.eof:
            piece = member.decompress(remaining, min(bytes_max - total + 1, DECOMPRESSED_PIECE_BYTES))
            total += len(piece)
            if total > bytes_max:
                raise Oversized("gzip")
            parts.append(piece)
            remaining = member.unconsumed_tail
            if not (piece or remaining or member.eof):
                raise Undecodable("gzip data ends too early")
        remaining = member.unused_data
    if not members:
        raise Undecodable("no gzip data")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(data: bytes | memoryview, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, bytes_max)
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise Undecodable("snappy header is cut off")
    parts: list[bytes] = []
    total = 0
    while position < len(view):
        if len(parts) >= SNAPPY_BLOCKS_MAX:
            raise Oversized("snappy")
        if position + 4 > len(view):
            raise Undecodable("snappy block length is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or position + length > len(view):
            raise Undecodable("snappy block is cut off")
        piece = _decompress_snappy_block(view[position : position + length], bytes_max - total)
        total += len(piece)
        parts.append(piece)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise Oversized("snappy")
    out = cramjam.snappy.decompress_raw(block)
    if len(out) <= DECOMPRESSED_PIECE_BYTES:
        return bytes(out)
    view = memoryview(out)
    return b"".join(
        [
            bytes(view[start : start + DECOMPRESSED_PIECE_BYTES])
            for start in range(0, len(view), DECOMPRESSED_PIECE_BYTES)
        ]
    )


def _decompress_lz4(data: bytes | memoryview, bytes_max: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    total = 0
    remaining: bytes | memoryview = data
    while not frame.eof:
        piece: bytes = frame.decompress(remaining, max_length=min(bytes_max - total + 1, DECOMPRESSED_PIECE_BYTES))
        total += len(piece)
        if total > bytes_max:
            raise Oversized("lz4")
        parts.append(piece)
        remaining = b""  # the decompressor keeps what it has not read
        if not frame.eof and (frame.needs_input or not piece):
            raise Undecodable("lz4 frame ends too early")
    if frame.unused_data:
        raise Undecodable("bytes are left over after the lz4 frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: bytes | memoryview, bytes_max: int) -> bytes:
    # A frame may declare any content size and the library would allocate it, so the declared size is checked first.
    declared_bytes = zstandard.get_frame_parameters(data).content_size
    is_declared = declared_bytes not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
    if not is_declared:
        output_bytes_max = min(max(ZSTD_GUESS_BYTES_MIN, len(data) * ZSTD_GUESS_RATIO), bytes_max)
    elif declared_bytes > bytes_max:
        raise Oversized("zstd")
    else:
        output_bytes_max = bytes_max
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        return decompressor.decompress(data, max_output_size=output_bytes_max, allow_extra_data=False)
    except zstandard.ZstdError:
        if is_declared:
            raise
        return _decompress_zstd_in_steps(data, bytes_max)


def _decompress_zstd_in_steps(data: bytes | memoryview, bytes_max: int) -> bytes:
    """Decompresses in steps data that exceeds the first estimate or is invalid, and distinguishes the two."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    total = 0
    with decompressor.stream_reader(data) as reader:
        while piece := reader.read(1 << 20):
            total += len(piece)
            if total > bytes_max:
                raise Oversized("zstd")
    return decompressor.decompress(data, max_output_size=max(total, 1), allow_extra_data=False)


def _compress_snappy(data: bytes) -> bytes:
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(data: bytes) -> bytes:
    compressed: bytes = lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
    return compressed


def _compress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _compress_gzip(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=GZIP_LEVEL, mtime=0)


_DECOMPRESSORS: dict[int, Callable[[Any, int], bytes]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
_COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_DECLARED_SIZE_READERS: Final[dict[int, Callable[[memoryview, int], int]]] = {
    GZIP: _declared_gzip_bytes,
    SNAPPY: _declared_snappy_bytes,
    LZ4: _declared_lz4_bytes,
    ZSTD: _declared_zstd_bytes,
}
