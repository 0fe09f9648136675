"""Around pages: bytes that PostgreSQL cannot hold, before Django's admin asks it for them, passwords in excess,
operators without a second factor, and when a session was last seen.
"""

from __future__ import annotations

from collections.abc import Callable

from allauth.core.exceptions import ReauthenticationRequired
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone, translation

from tenants import sessions
from tenants.errors import TookTooLong, Unavailable
from tenants.hashing import Busy
from tenants.requests import client_ip
from tenants.second_factor.gate import lacks_operators_factor
from tenants.slow_queries import is_given_up
from tenants.views.base import ask_again

OPERATOR_PREFIX = "/operator/"
ACCOUNTS_PREFIX = "/accounts/"
FACTOR_PREFIX = "/accounts/2fa/"
NUL = "\x00"
# What an operator without a second factor may still open.
WAYS_OUT = ("/operator/login/", "/operator/logout/")


class SessionSeenMiddleware:
    """Below the session's own, so that what it notes is about the session that the answer keeps."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        sessions.note_seen(request, client_ip(request), timezone.now())
        return response


class OperatorMiddleware:
    """U+0000 in an address, a query or a form of the panel is a bad request, not a crash. An operator who needs a
    second factor sets one up before anything else.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: object) -> HttpResponse | None:
        """Raises `BadRequest`. Here and not earlier, so that a form is read after its CSRF token was."""
        if not request.path_info.startswith(OPERATOR_PREFIX):
            return None
        queries = (request.GET, request.POST) if request.method == "POST" else (request.GET,)
        values = (value for query in queries for name in query for value in (name, *query.getlist(name)))
        if NUL in request.path_info or any(NUL in value for value in values):
            raise BadRequest("a name or value holds U+0000")
        if request.path_info in WAYS_OUT or not lacks_operators_factor(request):
            return None
        return redirect("page-security")


class BusyMiddleware:
    """A page that waited in vain for its turn to hash a password, or for the database, says when to come again."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if is_given_up(exception):
            error: Unavailable = TookTooLong()
        elif isinstance(exception, Busy):
            error = exception
        else:
            return None
        response = render(request, "console/busy.html", {"is_slow": is_given_up(exception)}, status=error.http_status)
        response["Retry-After"] = str(error.retry_after_s)
        return response


class AccountPagesMiddleware:
    """Around the sign-in library's pages, below its own middleware: they speak the language that the person has chosen,
    and no browser keeps one with secrets. Who must be asked again is led to that page, and back to where they were; the
    library would keep the whole request in the session meanwhile, cookies and all.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(ACCOUNTS_PREFIX):
            return self.get_response(request)
        language = request.user.language if request.user.is_authenticated else translation.get_language()
        with translation.override(language):
            response = self.get_response(request)
            response.headers["Content-Language"] = translation.get_language() or ""
        if request.path_info.startswith(FACTOR_PREFIX):
            response.headers["Cache-Control"] = "no-store"
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return ask_again(request) if isinstance(exception, ReauthenticationRequired) else None
