"""Limits of the web server for `GET /api/v1/limits`."""

from __future__ import annotations

from config.web import limits as web
from tenants.limits import Limit

LIMITS = (
    Limit("http_header_bytes_max", web.HEAD_BYTES_MAX, "bytes", "Request line and header fields of one request."),
    Limit("http_body_bytes_max", web.BODY_BYTES_MAX, "bytes", "Largest body of any HTTP request; files are not taken."),
    Limit("http_header_seconds_max", int(web.HEAD_S_MAX), "seconds", "How long a request's header may take to arrive."),
    Limit("http_body_seconds_max", int(web.BODY_S_MAX), "seconds", "How long a request's body may take to arrive."),
    Limit("http_idle_seconds_max", int(web.IDLE_S_MAX), "seconds", "How long a connection is kept between requests."),
    Limit("http_queue_seconds_max", int(web.QUEUED_S_MAX), "seconds", "How long a request waits before it is a 503."),
    Limit(
        "http_answer_bytes_per_second_min", web.ANSWER_BYTES_PER_S_MIN, "bytes",
        f"How fast an answer that takes longer than {web.ANSWER_S:g} s has to be taken.",
    ),
    Limit(
        "http_answer_seconds_max", int(web.ANSWER_S_MAX), "seconds", "How long an answer may take to be taken at most."
    ),
    Limit(
        "http_connections_per_address_max", web.CONNECTIONS_PER_ADDRESS_MAX, "connections",
        "HTTP connections of one address (of one /64 network with IPv6); with one more the stalest is closed.",
    ),
    Limit("http_connections_max", web.CONNECTIONS_MAX, "connections", "HTTP connections of all clients together."),
)  # fmt: skip
