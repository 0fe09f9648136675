"""Around pages: bytes that PostgreSQL cannot hold, before Django's admin asks it for them, and passwords in excess."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tenants.hashing import Busy

OPERATOR_PREFIX = "/operator/"
NUL = "\x00"


class OperatorMiddleware:
    """U+0000 in an address, a query or a form of the panel is a bad request, not a crash."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: object) -> None:
        """Raises `BadRequest`. Here and not earlier, so that a form is read after its CSRF token was."""
        if not request.path_info.startswith(OPERATOR_PREFIX):
            return
        queries = (request.GET, request.POST) if request.method == "POST" else (request.GET,)
        values = (value for query in queries for name in query for value in (name, *query.getlist(name)))
        if NUL in request.path_info or any(NUL in value for value in values):
            raise BadRequest("a name or value holds U+0000")


class BusyMiddleware:
    """A page that waited in vain for its turn to hash a password says so, and when to come again."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, Busy):
            return None
        response = render(request, "console/busy.html", status=exception.http_status)
        response["Retry-After"] = str(exception.retry_after_s)
        return response
