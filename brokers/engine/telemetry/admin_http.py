"""HTTP/1.1 requests and replies of the admin port, one request per connection."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import structlog

from brokers.contract.process_identity import ProcessIdentity

log = structlog.get_logger(__name__)

GET: Final = "GET"
DELETE: Final = "DELETE"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class InvalidParameter(Exception):
    """A query parameter is not a whole number."""


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request. `path` is decoded; `query` has the first value of each key.

    `process` is the identity in the client's certificate, None without one.
    """

    path: str
    query: dict[str, str]
    bearer: str | None
    process: ProcessIdentity | None = None
    method: str = GET

    def number(self, key: str, default: int) -> int:
        """Returns a query parameter as an integer. Raises InvalidParameter if it is not one."""
        try:
            return int(self.query.get(key, default))
        except ValueError as error:
            raise InvalidParameter(key) from error


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the admin port."""

    status: int
    body: bytes
    content_type: str = "application/json"

    @classmethod
    def json(cls, body: Any, status: int = 200) -> Reply:
        return cls(status, json.dumps(body).encode())


Handler = Callable[[Request], Reply]


def is_authorized(request: Request, secret: str) -> bool:
    """True if the bearer token is the control secret, compared in constant time."""
    return bool(secret) and request.bearer is not None and hmac.compare_digest(request.bearer.encode(), secret.encode())


def parse_request(head: bytes, process: ProcessIdentity | None = None) -> Request | Reply:
    """Parses the head of a request; returns an error reply if it is malformed."""
    try:
        request_line, *header_lines = head.decode("ascii").split("\r\n")
        method, target, _ = request_line.split(" ")
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query, max_num_fields=16).items()}
    except ValueError:
        return Reply.json({"error": "not an HTTP request"}, 400)
    if method not in (GET, DELETE):
        return Reply.json({"error": "only GET and DELETE are served"}, 405)
    bearer = None
    for header_line in header_lines:
        name, _, value = header_line.partition(":")
        if name.strip().lower() == "authorization":
            scheme, _, token = value.strip().partition(" ")
            bearer = token.strip() if scheme.lower() == "bearer" else None
    return Request(unquote(parts.path), query, bearer, process, method)


def response_bytes(head: bytes, process: ProcessIdentity | None, handler: Handler) -> bytes:
    """Returns the whole response to one request as bytes."""
    request = parse_request(head, process)
    reply = _handle(request, handler) if isinstance(request, Request) else request
    response_head = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\n"
        f"Content-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(reply.body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return response_head.encode() + reply.body


def _handle(request: Request, handler: Handler) -> Reply:
    try:
        return handler(request)
    except InvalidParameter:
        return Reply.json({"error": "a parameter is not a whole number"}, 400)
    except Exception as error:  # the connection must not stay open without a reply
        log.error("admin_request_failed", path=request.path, exc_info=error)
        return Reply.json({"error": "the broker failed to answer; its log says why"}, 500)
