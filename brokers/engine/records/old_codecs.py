"""Compression codecs of message formats 0 and 1 (REC-4): no zstd, and the wrong LZ4 header checksum of format 0.

The first LZ4 writers included the frame's magic number in the checksum. Readers of format 0 accept any checksum,
writers of format 0 write the wrong one, because old clients require it; from format 1 on it is right.
"""

from __future__ import annotations

from typing import Final

import lz4.frame
from xxhash import xxh32_intdigest

from brokers.engine.records.compression import LZ4, NONE, SNAPPY, Undecodable, compress, decompress

CODEC_MAX: Final = LZ4
CODECS: Final = (NONE, 1, SNAPPY, LZ4)

_MAGIC_BYTES: Final = 4
_DESCRIPTOR_BYTES_MIN: Final = 3  # flags, block descriptor, checksum
_CONTENT_SIZE: Final = 0x08
_DICTIONARY_ID: Final = 0x01


def decompress_old(codec: int, data: bytes, magic: int) -> bytes:
    """Returns the messages in a wrapper of format `magic`. Raises Undecodable, also for zstd, or Oversized."""
    if not NONE < codec <= CODEC_MAX:
        raise Undecodable(f"codec {codec} has no place in message format {magic}")
    if codec == LZ4 and magic == 0:
        data = _with_checksum(data, whole=False)
    return decompress(codec, data)


def compress_old(codec: int, data: bytes, magic: int) -> bytes:
    """Returns `data` compressed by `codec` (1 to 3), readable by clients of format `magic`."""
    if codec != LZ4:
        return compress(codec, data)
    # Without the content size: the first readers expect a header of seven bytes.
    compressed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return _with_checksum(compressed, whole=True) if magic == 0 else compressed


def _with_checksum(frame: bytes, *, whole: bool) -> bytes:
    """Returns the frame with the checksum of its descriptor, or of the `whole` header as in format 0."""
    if len(frame) < _MAGIC_BYTES + _DESCRIPTOR_BYTES_MIN:
        raise Undecodable("lz4 header is cut off")
    flags = frame[_MAGIC_BYTES]
    at = _MAGIC_BYTES + 2 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if at >= len(frame):
        raise Undecodable("lz4 header is cut off")
    checksum = xxh32_intdigest(frame[0 if whole else _MAGIC_BYTES : at]) >> 8 & 0xFF
    return b"%b%c%b" % (frame[:at], checksum, frame[at + 1 :])
