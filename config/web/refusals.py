"""Responses to requests that are refused before Django: problem details, as everywhere in the API."""

from __future__ import annotations

import json

from gunicorn.http import errors

from config.web.framing import Refused

RETRY_AFTER_S = 5

# Parser errors caused by the client; others are internal errors.
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (errors.LimitRequestLine, 414),
    (errors.LimitRequestHeaders, 431),
    (errors.ExpectationFailed, 417),
    (errors.UnsupportedTransferCoding, 501),
    (errors.ForbiddenProxyRequest, 403),
    (errors.ConfigurationProblem, 500),
    (errors.InvalidHTTPVersion, 400),
    (errors.ParseException, 400),
)


def status_of(error: BaseException) -> int:
    """Returns the status of a request that cannot be read; 500 for anything else."""
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def refusal(status: int) -> bytes:
    """Returns a complete HTTP response that closes the connection, because further input is meaningless."""
    from tenants.api.middleware import REQUEST_ID_HEADER, new_request_id  # Django is set up in the worker only
    from tenants.api.problems import PROBLEM_TYPE, error_for_status, problem_body

    error, request_id = error_for_status(status), new_request_id()
    body = json.dumps(problem_body(status, error.code, error.title, "", request_id)).encode()
    retry = f"Retry-After: {RETRY_AFTER_S}\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {error.title}\r\nConnection: close\r\n{retry}Content-Type: {PROBLEM_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n{REQUEST_ID_HEADER}: {request_id}\r\n\r\n"
    )
    return head.encode() + body
