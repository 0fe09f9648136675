"""The admin port: a few GET requests over HTTP/1.1, answered on the loop, one connection per question.

It shares the loop with the data path on purpose: an answer proves that the loop turns.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

HEAD_BYTES_MAX: Final = 8_192
REQUEST_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 64

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is decoded; `query` holds the first value of each key."""

    path: str
    query: dict[str, str]
    bearer: str | None

    def number(self, key: str, default: int) -> int:
        """Raises ValueError for something that is no whole number."""
        return int(self.query.get(key, default))


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str = "application/json"

    @classmethod
    def json(cls, body: Any, status: int = 200) -> Reply:
        return cls(status, json.dumps(body).encode())


Answer = Callable[[Request], Reply]


def is_authorized(request: Request, secret: str) -> bool:
    """The bearer token is the control secret; the comparison takes the same time wherever they differ."""
    return request.bearer is not None and hmac.compare_digest(request.bearer.encode(), secret.encode())


def parse(head: bytes) -> Request | Reply:
    """The request in `head`, or the reply to one that is none."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, _ = first.split(" ")
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query, max_num_fields=16).items()}
    except ValueError:
        return Reply.json({"error": "not an HTTP request"}, 400)
    if method != "GET":
        return Reply.json({"error": "only GET is served"}, 405)
    bearer = None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "authorization":
            scheme, _, token = value.strip().partition(" ")
            bearer = token.strip() if scheme.lower() == "bearer" else None
    return Request(unquote(parts.path), query, bearer)


class AdminServer:
    """`answer` must not wait."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when the port cannot be bound."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._reply(head))
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            return
        finally:
            self._open -= 1
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        request = parse(head)
        if isinstance(request, Request):
            try:
                request = self._answer(request)
            except ValueError:
                request = Reply.json({"error": "a number is not one"}, 400)
        lines = (
            f"HTTP/1.1 {request.status} {_REASONS[request.status]}\r\n"
            f"Content-Type: {request.content_type}\r\n"
            f"Content-Length: {len(request.body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return lines.encode() + request.body
