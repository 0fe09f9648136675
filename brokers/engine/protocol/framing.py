"""How long a frame may be: int32 size, then that many bytes (WIRE-1). A size that is negative or over the limit is the
peer's fault and final: the connection must be closed without an answer.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.errors import FrameTooLarge, MalformedRequest

SIZE_BYTES: Final = 4
# What a frame begins with.
API_KEY_BYTES: Final = 2
# `socket.request.max.bytes`: what one request of an admitted client may weigh.
FRAME_BYTES_MAX: Final = 104_857_600
# Before a peer has proved who it is (SASL), it may not make us hold more than this.
UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 65_536
# The shortest request header: api key, version, correlation id.
FRAME_BYTES_MIN: Final = 8

assert FRAME_BYTES_MIN < UNAUTHENTICATED_FRAME_BYTES_MAX < FRAME_BYTES_MAX


def check_frame_size(size_bytes: int, bytes_max: int) -> None:
    """Refuse a size that no honest frame has.

    TLS and HTTP greetings land here too: read as a size, their first four bytes exceed any sane limit.
    Raises FrameTooLarge, or MalformedRequest when the frame could not even hold a header.
    """
    if size_bytes > bytes_max:
        raise FrameTooLarge(f"a frame of {size_bytes} bytes exceeds the limit of {bytes_max}")
    if size_bytes < FRAME_BYTES_MIN:
        raise MalformedRequest(f"a frame of {size_bytes} bytes cannot hold a request header")
