"""Problem details (RFC 9457): the format of every error of the API.

Every error, from an invalid field to a crash, becomes `{type, title, status, code, detail, request_id, errors}`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404, HttpResponse
from rest_framework import exceptions as drf

from tenants.errors import DomainError, FieldError, TookTooLong
from tenants.slow_queries import is_query_cancelled

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
ERRORS_MAX = 50  # maximum number of errors named in one response
CHALLENGE = 'Bearer realm="penstock"'

# Code and title for a status without a domain error (router, framework, middleware).
STATUS_TITLES: dict[int, tuple[str, str]] = {
    400: ("bad_request", "The request cannot be read"),
    401: ("unauthenticated", "A valid token is needed"),
    403: ("permission_denied", "This is not allowed for you"),
    404: ("not_found", "There is no such resource"),
    405: ("method_not_allowed", "This resource does not have that method"),
    406: ("not_acceptable", "Answers are application/json"),
    408: ("request_timeout", "The request took too long to arrive"),
    411: ("length_required", "Send the body with a Content-Length"),
    413: ("body_too_large", "The request body is too large"),
    414: ("uri_too_long", "The address is too long"),
    415: ("unsupported_media_type", "Send application/json"),
    417: ("expectation_failed", "Nothing but 100-continue can be expected"),
    429: ("rate_limited", "Too many requests"),
    431: ("headers_too_large", "The header fields are too large"),
    500: ("internal_error", "The service failed; the request id helps us find out why"),
    501: ("not_implemented", "There is no such transfer coding here"),
    503: ("unavailable", "A part of the service does not answer"),
}


def problem_body(
    status: int, code: str, title: str, detail: str, request_id: str | None, errors: Sequence[FieldError] = ()
) -> dict[str, Any]:
    """Returns the members of a problem document; `errors` only if there are some."""
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "code": code}
    if detail and detail != title:
        body["detail"] = detail
    if errors:
        body["errors"] = [
            {
                name: value
                for name, value in (
                    ("pointer", error.pointer),
                    ("parameter", error.parameter),
                    ("header", error.header),
                    ("code", error.code),
                    ("detail", error.detail),
                )
                if value is not None
            }
            for error in errors[:ERRORS_MAX]
        ]
    body["request_id"] = request_id or ""
    return body


def problem_response(error: DomainError, request_id: str | None) -> HttpResponse:
    """Converts a domain error to an HTTP response."""
    body = problem_body(error.http_status, error.code, error.title, error.detail, request_id, error.errors)
    response = HttpResponse(json.dumps(body), status=error.http_status, content_type=PROBLEM_TYPE)
    response["Cache-Control"] = "no-store"
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = CHALLENGE
    if error.retry_after_s is not None:
        response["Retry-After"] = str(error.retry_after_s)
    return response


def error_for_status(status: int, detail: str = "") -> DomainError:
    """Returns the domain error for a bare HTTP status."""
    code, title = STATUS_TITLES.get(status, ("bad_request", "The request was refused"))
    return DomainError(detail, code=code, http_status=status, title=title)


def domain_error(exception: BaseException) -> DomainError | None:
    """Converts an exception to a domain error, or None if it is an internal error."""
    match exception:
        case DomainError():
            return exception
        case drf.ValidationError():
            return validation_error(exception.detail)
        case drf.Throttled():
            error = error_for_status(429)
            error.retry_after_s = max(1, round(exception.wait or 1))
            return error
        case drf.MethodNotAllowed() | drf.NotAcceptable() | drf.UnsupportedMediaType():
            return error_for_status(exception.status_code, str(exception.detail))
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            return error_for_status(401, str(exception.detail))
        case drf.APIException():
            return error_for_status(exception.status_code, str(exception.detail))
        case Http404():
            return error_for_status(404)
        case DjangoPermissionDenied():
            return error_for_status(403)
        case RequestDataTooBig():
            return error_for_status(413)
        case SuspiciousOperation():
            return error_for_status(400)
        case OperationalError() if is_query_cancelled(exception):
            return TookTooLong()
    return None


def validation_error(detail: Any, *, in_query: bool = False) -> DomainError:
    """Converts validation errors of a serializer to one `invalid_request` that names the place of each error."""
    field_errors = list(_field_errors(detail, ""))
    if in_query:
        field_errors = [
            FieldError(parameter=(error.pointer or "").lstrip("/"), detail=error.detail, code=error.code)
            for error in field_errors
        ]
    first = field_errors[0] if field_errors else None
    summary = f"{first.pointer or first.parameter or 'The body'}: {first.detail}" if first else ""
    return DomainError(
        summary, code="invalid_request", http_status=400, title="A value in the request is wrong", errors=field_errors
    )


def _field_errors(detail: Any, pointer: str) -> Iterator[FieldError]:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            if name == "non_field_errors":
                yield from _field_errors(inner, pointer)
            else:
                yield from _field_errors(inner, f"{pointer}/{_escaped(str(name))}")
    elif isinstance(detail, list | tuple):
        for index, inner in enumerate(detail):
            is_container = isinstance(inner, Mapping | list | tuple)
            yield from _field_errors(inner, f"{pointer}/{index}" if is_container else pointer)
    else:
        yield FieldError(pointer=pointer, detail=str(detail), code=str(getattr(detail, "code", None) or "invalid"))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def exception_handler(exception: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Exception handler of DRF: converts every exception to a problem; unexpected ones are logged and answered with
    500.
    """
    request = context.get("request")
    request_id = getattr(request, "request_id", None) or getattr(getattr(request, "_request", None), "request_id", None)
    error = domain_error(exception)
    if error is None:
        logger.error("api request failed", exc_info=exception, extra={"request_id": request_id})
        error = error_for_status(500)
    response = problem_response(error, request_id)
    if isinstance(exception, drf.MethodNotAllowed) and (view := context.get("view")) is not None:
        response["Allow"] = ", ".join(view.allowed_methods)
    return response
