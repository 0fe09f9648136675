"""Very long answers are encoded a piece at a time, and other requests come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from brokers.engine.handlers.context import Call, Handler
from brokers.engine.protocol.codec import Encoded, encode_response_in_chunks

# Of an answer that is encoded at once.
LINES_AT_ONCE_MAX: Final = 1_000


def in_chunks(handler: Handler, lines_of: Callable[[Any], int]) -> Handler:
    """`lines_of` counts what makes an answer long. Its lists may be made while they are encoded."""

    def handle(call: Call, request: Any) -> Any:
        answer = handler(call, request)
        if hasattr(answer, "__await__"):
            return _later(call, answer)
        return (
            answer if lines_of(answer) <= LINES_AT_ONCE_MAX else encoded_in_chunks(call.api_key, call.version, answer)
        )

    async def _later(call: Call, answer: Awaitable[Any]) -> Any:
        response = await answer
        if lines_of(response) <= LINES_AT_ONCE_MAX:
            return response
        return await encoded_in_chunks(call.api_key, call.version, response)

    return handle


async def encoded_in_chunks(api_key: int, version: int, response: Any) -> Encoded:
    """`response`, a piece of it in each turn of the loop."""
    chunks = encode_response_in_chunks(api_key, version, response)
    while True:
        try:
            next(chunks)
        except StopIteration as end:
            return Encoded(end.value)
        await asyncio.sleep(0)
