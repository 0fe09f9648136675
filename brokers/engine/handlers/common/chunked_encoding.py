"""Encodes long responses in chunks, and serves other requests in between."""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.codec import Encoded, encode_response_in_chunks
from brokers.engine.scheduling.time_slice import yield_to_others

# Maximum number of lines of a response that is encoded in one turn of the event loop.
LINES_AT_ONCE_MAX: Final = 1_000
# Responses to longer requests are encoded in chunks even if they have few lines, since they repeat the names.
REQUEST_BYTES_MAX: Final = 1024 * 1024


def is_long(call: Call, response: Any) -> bool:
    """True if a response takes more than one turn to encode."""
    result_lines = call.api.result_lines
    if result_lines is None:
        return False
    return call.request_bytes > REQUEST_BYTES_MAX or result_lines(response) > LINES_AT_ONCE_MAX


async def encoded_in_chunks(api_key: int, version: int, response: Any) -> Encoded:
    """Encodes a response, one chunk in each turn of the event loop. Its lists may be generated meanwhile."""
    chunks = encode_response_in_chunks(api_key, version, response)
    await yield_to_others()  # creating a long response took this turn
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return Encoded(end.value, getattr(response, "throttle_time_ms", 0))
        await yield_to_others()
