"""Middleware that assigns request ids and, for `/api/`, limits bodies and answers problem details."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.urls import is_valid_path

from tenants.api.addresses import routed_path
from tenants.api.problems import PROBLEM_TYPE, domain_error, error_for_status, problem_response
from tenants.limits import body_bytes_max

logger = logging.getLogger(__name__)

API_PREFIX = "/api/"
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{8,64}")
# The framework's refusals are pages for browsers, which problem details replace; only these headers are kept.
_KEPT_STATUS_HEADERS = ("Allow", "Retry-After")


def new_request_id() -> str:
    """Returns `req-` and 16 hexadecimal digits."""
    return f"req-{secrets.token_hex(8)}"


class ApiMiddleware:
    """Assigns and echoes `request.request_id`, and prevents HTML responses in the API."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        requested_id = request.headers.get(REQUEST_ID_HEADER, "")
        request_id = requested_id if _REQUEST_ID_PATTERN.fullmatch(requested_id) else new_request_id()
        request.request_id = request_id  # type: ignore[attr-defined]
        if request.path.startswith(API_PREFIX):
            response = self._respond(request, request_id)
        else:
            response = self.get_response(request)
        response[REQUEST_ID_HEADER] = request_id
        return response

    def _respond(self, request: HttpRequest, request_id: str) -> HttpResponse:
        bytes_max = body_bytes_max(request.path)
        if _body_bytes(request) > bytes_max:
            error = error_for_status(413, f"A body may have {bytes_max} bytes.")
            return problem_response(error, request_id)
        if "HTTP_TRANSFER_ENCODING" in request.META:
            # A chunked body has no announced length; the WSGI handler would treat it as empty.
            return problem_response(error_for_status(411), request_id)
        path = request.path_info = routed_path(request.META, request.path_info)
        is_known = is_valid_path(path) or is_valid_path(f"{path}/")  # /api/docs is redirected to /api/docs/
        if "\x00" in path or not is_known:  # programs must not get the console's error page
            return problem_response(error_for_status(404), request_id)
        response = self.get_response(request)
        if response.status_code >= 400 and not response.get("Content-Type", "").startswith(PROBLEM_TYPE):
            problem = problem_response(error_for_status(response.status_code), request_id)
            for name in _KEPT_STATUS_HEADERS:
                if name in response:
                    problem[name] = response[name]
            return problem
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answers 500 for an exception in a view outside DRF (DRF views use `problems.exception_handler`)."""
        if not request.path.startswith(API_PREFIX):
            return None
        request_id = getattr(request, "request_id", "")
        error = domain_error(exception)
        if error is None:
            logger.error("api request failed", exc_info=exception, extra={"request_id": request_id})
            error = error_for_status(500)
        return problem_response(error, request_id)


def _body_bytes(request: HttpRequest) -> int:
    """Returns the announced length of the body."""
    content_length = request.META.get("CONTENT_LENGTH") or "0"
    return int(content_length) if content_length.isascii() and content_length.isdigit() else 0
