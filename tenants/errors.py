"""Errors of services: refusals with a stable `code` and an HTTP status.

Services raise these; `tenants.api.problems` converts them to RFC 9457 problem details, and the console to a message.
`title` and `detail` are English and may be shown; `code` is for programs and never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenants.models import AuditEntry


def gettext_noop(message: str) -> str:
    """Marks a message id for translators, where Django's function cannot be used: it needs settings, which tasks of
    Spark do not have.
    """
    return message


class Message(str):
    """English sentence with values that carries its message id, so that pages can translate it.

    Everything but `tenants.wording.localized` treats it as the string it is.

        Message(gettext_noop("A list has at most %(n)s entries."), n=20)
    """

    msgid: str
    values: dict[str, object]

    def __new__(cls, msgid: str, **values: object) -> Message:
        message = super().__new__(cls, msgid % values if values else msgid)
        message.msgid, message.values = msgid, values
        return message

    def to_body(self) -> dict[str, Any]:
        """Returns the id and the values for JSON; values that are messages are bodies too."""
        values = {name: value.to_body() if isinstance(value, Message) else value for name, value in self.values.items()}
        return {"id": self.msgid, "values": values}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Message:
        """Returns the message that `to_body` described."""
        values = {
            name: cls.from_body(value) if isinstance(value, dict) else value for name, value in body["values"].items()
        }
        return cls(body["id"], **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """Wrong place in the request: a JSON pointer into the body, or the name of a query parameter or header."""

    detail: str
    code: str = "invalid"
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class DomainError(Exception):
    """Refusal of a request that has changed nothing."""

    code = "bad_request"
    http_status = 400
    title = "The request was refused"

    def __init__(
        self,
        detail: str = "",
        *,
        code: str | None = None,
        http_status: int | None = None,
        title: str | None = None,
        errors: Sequence[FieldError] = (),
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail or self.title)
        self.detail = detail
        self.code = code or type(self).code
        self.http_status = http_status or type(self).http_status
        self.title = title or type(self).title
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s


class Invalid(DomainError):
    """A value of the request is wrong: `Invalid.at("/name", "Already used.", code="taken")`."""

    code = "invalid_request"
    http_status = 400
    title = "A value in the request is wrong"

    @classmethod
    def at(cls, pointer: str, detail: str, *, code: str = "invalid") -> Invalid:
        """Returns an error at one JSON pointer of the body."""
        return cls(detail, errors=[FieldError(pointer=pointer, detail=detail, code=code)])


class Unauthenticated(DomainError):
    code = "unauthenticated"
    http_status = 401
    title = "A valid token is needed"


class PaymentRequired(DomainError):
    code = "payment_required"
    http_status = 402
    title = "The tenant has an unpaid invoice"


class PermissionDenied(DomainError):
    """The object is visible, but the action is not allowed. Objects of other tenants raise `NotFound` instead."""

    code = "permission_denied"
    http_status = 403
    title = "This is not allowed for you"
    # Missing permission, if there is one.
    scope = ""


class ConfirmationNeeded(PermissionDenied):
    """The action needs more than a session: the password or the second factor must be entered again first."""

    code = "confirmation_needed"
    title = "Confirm that it is you first"


class SecondFactorNeeded(PermissionDenied):
    """The tenant, or the operator panel, requires a second factor."""

    code = "second_factor_needed"
    title = "A second factor is needed"


class SsoNeeded(PermissionDenied):
    """The tenant is open to sessions of its single sign-on only; `address` is the path that begins one."""

    code = "sso_needed"
    title = "Sign in through your organisation's provider"
    address = ""


class QuotaExceeded(DomainError):
    """An entitlement is exhausted (429 is for rates only)."""

    code = "quota_exceeded"
    http_status = 403
    title = "A limit of the tenant or plan is reached"


class NotFound(DomainError):
    """The object is unknown or belongs to another tenant; both give the same response."""

    code = "not_found"
    http_status = 404
    title = "There is no such resource"


class Conflict(DomainError):
    """The state of the object does not allow this."""

    code = "conflict"
    http_status = 409
    title = "The current state does not allow this"


class PreconditionFailed(DomainError):
    code = "precondition_failed"
    http_status = 412
    title = "The resource has changed"


class Unprocessable(DomainError):
    code = "unprocessable"
    http_status = 422
    title = "The request cannot be carried out"


class RateLimited(DomainError):
    code = "rate_limited"
    http_status = 429
    title = "Too many requests"


class Unavailable(DomainError):
    """A dependency (data plane, queue) does not answer at the moment; the request should be repeated later."""

    code = "unavailable"
    http_status = 503
    title = "A part of the service does not answer"


class TookTooLong(Unavailable):
    """The database query was cancelled; nothing was changed."""

    code = "took_too_long"
    title = "The answer takes too long to work out"

    def __init__(self) -> None:
        super().__init__("Ask for less at once, or again in a few seconds. Nothing was changed.", retry_after_s=5)


class OutcomeUnknown(Unavailable):
    """The request may have been executed: it was sent, but no response arrived.

    `audit_entries` describe the change; `tenants.audit` writes them after the transaction is rolled back.
    """

    code = "outcome_unknown"
    title = "It is not known whether this was carried out"
    words = (
        "No broker has said whether this was carried out. Look at it again before you repeat it; "
        "the audit log has what was asked for."
    )

    def __init__(self, detail: str = words) -> None:
        super().__init__(detail, retry_after_s=1)
        self.audit_entries: tuple[AuditEntry, ...] = ()
