"""Very long answers are encoded a piece at a time, and other requests come in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from brokers.engine.handlers.context import Call, Handler
from brokers.engine.protocol.codec import Encoded, encode_response_in_chunks
from brokers.engine.scheduling.time_slice import yield_to_others

# Of an answer that is encoded at once.
LINES_AT_ONCE_MAX: Final = 1_000
# Answers to longer requests go in pieces however few their lines are: they repeat the names.
REQUEST_BYTES_MAX: Final = 1024 * 1024


def in_chunks(handler: Handler, lines_of: Callable[[Any], int]) -> Handler:
    """`lines_of` counts what makes an answer long. Its lists may be made while they are encoded."""

    def handle(call: Call, request: Any) -> Any:
        answer = handler(call, request)
        if hasattr(answer, "__await__"):
            return _later(call, answer)
        return encoded_in_chunks(call.api_key, call.version, answer) if is_long(call, answer) else answer

    async def _later(call: Call, answer: Awaitable[Any]) -> Any:
        response = await answer
        if is_long(call, response):
            return await encoded_in_chunks(call.api_key, call.version, response)
        return response

    def is_long(call: Call, response: Any) -> bool:
        return call.request_bytes > REQUEST_BYTES_MAX or lines_of(response) > LINES_AT_ONCE_MAX

    return handle


async def encoded_in_chunks(api_key: int, version: int, response: Any) -> Encoded:
    """`response`, a piece of it in each turn of the loop."""
    chunks = encode_response_in_chunks(api_key, version, response)
    await yield_to_others()  # to make a long answer took this turn
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return Encoded(end.value, getattr(response, "throttle_time_ms", 0))
        await yield_to_others()
