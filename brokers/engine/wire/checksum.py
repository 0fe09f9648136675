"""CRC-32C (Castagnoli) for record batches and plain CRC-32 for the older message formats (REC-6, VEC-1).

Both accept any bytes-like object and never copy it: a batch is checked where it was received.
"""

from __future__ import annotations

import zlib

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C (Castagnoli) checksum of `data` as an unsigned 32-bit integer."""
    checksum: int = _crc32c(data)
    return checksum


def crc32(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32 (IEEE) checksum of `data` as an unsigned 32-bit integer."""
    return zlib.crc32(data)
