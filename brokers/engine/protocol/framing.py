"""Sizes of frames: an int32 size, then the contents of that size in bytes (WIRE-1).

After a negative size or one above the limit the connection must be closed without a response.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest

SIZE_BYTES: Final = 4
# Size of the api key, with which the contents of a frame begin.
API_KEY_BYTES: Final = 2
# Default of `socket.request.max.bytes`: maximum size of a request of an authenticated client.
FRAME_BYTES_MAX: Final = 104_857_600
# Maximum size of a request before SASL authentication, which limits the memory that unknown peers can use.
UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 65_536
# Size of the shortest request header: api key, version, correlation id.
FRAME_BYTES_MIN: Final = 8

assert FRAME_BYTES_MIN < UNAUTHENTICATED_FRAME_BYTES_MAX < FRAME_BYTES_MAX


def check_frame_size(size_bytes: int, bytes_max: int) -> None:
    """Checks the announced size of a frame.

    The first bytes of TLS and HTTP are detected as well: read as a size, they exceed any limit. Raises FrameTooLarge,
    or MalformedRequest if the frame is too small for a header.
    """
    if size_bytes > bytes_max:
        raise FrameTooLarge(f"a frame of {size_bytes} bytes exceeds the limit of {bytes_max}")
    if size_bytes < FRAME_BYTES_MIN:
        raise MalformedRequest(f"a frame of {size_bytes} bytes cannot hold a request header")
