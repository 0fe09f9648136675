"""Codecs as message formats 0 and 1 use them (REC-4): no zstd, and the LZ4 header checksum that format 0 got wrong.

The first LZ4 writers took the checksum over the frame's magic number too. Readers of format 0 accept whatever stands
there, writers of format 0 write it wrong, since that is what old clients insist on; from format 1 on it is right.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import lz4.frame

from brokers.engine.records.compression import LZ4, NONE, SNAPPY, Undecodable, deflate, inflate

CODEC_MAX: Final = LZ4
CODECS: Final = (NONE, 1, SNAPPY, LZ4)

_MAGIC_BYTES: Final = 4
_DESCRIPTOR_BYTES_MIN: Final = 3  # flags, block descriptor, checksum
_CONTENT_SIZE: Final = 0x08
_DICTIONARY_ID: Final = 0x01
_LONG: Final = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_WORD: Final = Struct("<I")


def inflate_old(codec: int, data: bytes, magic: int) -> bytes:
    """The inner messages of a wrapper of format `magic`. Raises Undecodable or Oversized; zstd is undecodable."""
    if not NONE < codec <= CODEC_MAX:
        raise Undecodable(f"codec {codec} has no place in message format {magic}")
    if codec == LZ4 and magic == 0:
        data = _with_checksum(data, whole=False)
    return inflate(codec, data)


def deflate_old(codec: int, data: bytes, magic: int) -> bytes:
    """`data` behind `codec` (1 to 3), as clients of format `magic` read it."""
    if codec != LZ4:
        return deflate(codec, data)
    # Without the content's size: the first readers expect a header of seven bytes.
    packed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return _with_checksum(packed, whole=True) if magic == 0 else packed


def _with_checksum(frame: bytes, *, whole: bool) -> bytes:
    """The frame with its header's checksum over the descriptor, or over the `whole` header as format 0 has it."""
    if len(frame) < _MAGIC_BYTES + _DESCRIPTOR_BYTES_MIN:
        raise Undecodable("lz4 header is cut off")
    flags = frame[_MAGIC_BYTES]
    at = _MAGIC_BYTES + 2 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if at >= len(frame):
        raise Undecodable("lz4 header is cut off")
    checksum = short_xxh32(frame[0 if whole else _MAGIC_BYTES : at]) >> 8 & 0xFF
    return b"%b%c%b" % (frame[:at], checksum, frame[at + 1 :])


def short_xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes, or of an LZ4 frame header, which is at most 18."""
    size = len(data)
    position = 0
    if size >= 16:
        lanes = [(_PRIME_1 + _PRIME_2) & _LONG, _PRIME_2, 0, -_PRIME_1 & _LONG]
        for lane in range(4):
            (word,) = _WORD.unpack_from(data, position)
            lanes[lane] = _rotated(lanes[lane] + word * _PRIME_2, 13) * _PRIME_1 & _LONG
            position += 4
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = _PRIME_5
    value = value + size & _LONG
    while position + 4 <= size:
        (word,) = _WORD.unpack_from(data, position)
        value = _rotated(value + word * _PRIME_3, 17) * _PRIME_4 & _LONG
        position += 4
    for byte in data[position:]:
        value = _rotated(value + byte * _PRIME_5, 11) * _PRIME_1 & _LONG
    value = (value ^ value >> 15) * _PRIME_2 & _LONG
    value = (value ^ value >> 13) * _PRIME_3 & _LONG
    return value ^ value >> 16


def _rotated(value: int, by: int) -> int:
    value &= _LONG
    return (value << by | value >> (32 - by)) & _LONG
