"""Middleware of pages: answers for bytes that PostgreSQL cannot store, limits password hashing, enforces operators'
second factor, confines sessions of single sign-on, and records when a session was last seen.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth import logout
from django.core.exceptions import BadRequest
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from psycopg.errors import UntranslatableCharacter

from tenants import sessions
from tenants.errors import TookTooLong, Unavailable
from tenants.hashing import HashingBusy
from tenants.requests import client_ip
from tenants.second_factor.gate import lacks_factor_required_of_operators
from tenants.slow_queries import is_query_cancelled
from tenants.views.base import outside_sso, redirect_to_reauthentication

OPERATOR_PREFIX = "/operator/"
ACCOUNTS_PREFIX = "/accounts/"
# Pages about the whole account, which a session of single sign-on may not open.
ACCOUNT_PREFIXES = (ACCOUNTS_PREFIX, OPERATOR_PREFIX, "/security/", "/join/")
FACTOR_PREFIX = "/accounts/2fa/"
NUL = "\x00"
# Pages that an operator without a second factor may still open.
EXEMPT_PATHS = ("/operator/login/", "/operator/logout/")


class SessionSeenMiddleware:
    """Records the use of a session. It runs inside the session middleware, so that it sees the session of
    the response.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        sessions.record_seen(request, client_ip(request), timezone.now())
        return response


class OperatorMiddleware:
    """Answers 400 for U+0000 in a path, query or form of the panel, and redirects operators who must set up a second
    factor.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: object) -> HttpResponse | None:
        """Raises `BadRequest` for U+0000, and redirects to the page that sets up a second factor.

        It runs after the CSRF check, so that the form is read after its token.
        """
        if not request.path_info.startswith(OPERATOR_PREFIX):
            return None
        queries = (request.GET, request.POST) if request.method == "POST" else (request.GET,)
        values = (value for query in queries for name in query for value in (name, *query.getlist(name)))
        if NUL in request.path_info or any(NUL in value for value in values):
            raise BadRequest("a name or value holds U+0000")
        if request.path_info in EXEMPT_PATHS or not lacks_factor_required_of_operators(request):
            return None
        return redirect("page-security")


# The driver refuses text with U+0000 before it is sent, by an error without a code.
_DRIVER_MESSAGE = "cannot contain NUL"


def _has_zero_byte(exception: BaseException) -> bool:
    """True for a query that was refused because of U+0000, which names in Kafka may contain and PostgreSQL's text
    cannot; False for other database errors.
    """
    if not isinstance(exception, DataError):
        return False
    return isinstance(exception.__cause__, UntranslatableCharacter) or _DRIVER_MESSAGE in str(exception)


class ZeroByteMiddleware:
    """Answers 404 for a page that looks for a row by a name with U+0000, because no row has one.

    Requests are not refused because of U+0000: names of users, groups and rules that Kafka clients created may have it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        if _has_zero_byte(exception):
            raise Http404 from exception


class SsoSessionMiddleware:
    """Ends expired sessions of single sign-on, and denies the others the pages of the whole account.

    The identity provider belongs to one tenant: its session must not set a password, add a passkey, read the account's
    other sessions, or enter the operator panel.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *_view: object) -> HttpResponse | None:
        """Redirects a reauthentication to the provider; answers 403 for other pages of the account."""
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or sessions.sso_tenant_of(request) is None:
            return None
        user = request.user
        if sessions.has_sso_expired(request) or not user.is_authenticated or user.is_staff or user.is_superuser:
            logout(request)
            return None
        path = request.path_info
        if path == reverse("account_reauthenticate"):
            query = {"again": "1", "next": request.GET.get("next", "/")}
            return redirect(f"{reverse('page-sso')}?{urlencode(query)}")
        if path != reverse("account_logout") and path.startswith(ACCOUNT_PREFIXES):
            return outside_sso(request)
        return None


class BusyMiddleware:
    """Answers 503 with the time to retry if password hashing was busy or a database query was cancelled."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if is_query_cancelled(exception):
            error: Unavailable = TookTooLong()
        elif isinstance(exception, HashingBusy):
            error = exception
        else:
            return None
        response = render(
            request, "console/busy.html", {"is_slow": is_query_cancelled(exception)}, status=error.http_status
        )
        response["Retry-After"] = str(error.retry_after_s)
        return response


class AccountPagesMiddleware:
    """Middleware of the sign-in library's pages, inside the library's own.

    It activates the person's language, and prevents caching of pages with secrets. It redirects to reauthentication
    itself, because the library would store the whole request in the session meanwhile, including cookies.
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
        return redirect_to_reauthentication(request) if isinstance(exception, ReauthenticationRequired) else None
