"""Very long responses are encoded a piece at a time, and other requests come in between."""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.handlers.context import Call
from brokers.engine.protocol.codec import Encoded, encode_response_in_chunks
from brokers.engine.scheduling.time_slice import yield_to_others

# Lines of a response that is encoded in one turn.
LINES_AT_ONCE_MAX: Final = 1_000
# Responses to longer requests are encoded in pieces however few their lines are: they repeat the names.
REQUEST_BYTES_MAX: Final = 1024 * 1024


def is_long(call: Call, response: Any) -> bool:
    """Returns True if a response takes more than a turn to encode."""
    result_lines = call.api.result_lines
    if result_lines is None:
        return False
    return call.request_bytes > REQUEST_BYTES_MAX or result_lines(response) > LINES_AT_ONCE_MAX


async def encoded_in_chunks(api_key: int, version: int, response: Any) -> Encoded:
    """Encodes a response, a piece of it in each turn of the loop. Its lists may be made while they are encoded."""
    chunks = encode_response_in_chunks(api_key, version, response)
    await yield_to_others()  # to make a long response took this turn
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return Encoded(end.value, getattr(response, "throttle_time_ms", 0))
        await yield_to_others()
