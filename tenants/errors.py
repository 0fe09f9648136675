"""What a service may refuse, as one family of errors with a stable `code` and an HTTP status.

Services raise these; `tenants.api.problems` turns them into RFC 9457 problem details and the console into a message.
`title` and `detail` are English and may be shown; `code` is what programs compare and never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenants.models import AuditEntry


class Message(str):
    """An English sentence with values in it, which knows its message id and the values: a page says it in the reader's
    language (`tenants.wording.localized`), everything else takes it for the string it is.

        Message(gettext_noop("A list has at most %(n)s entries."), n=20)
    """

    msgid: str
    values: dict[str, object]

    def __new__(cls, msgid: str, **values: object) -> Message:
        message = super().__new__(cls, msgid % values if values else msgid)
        message.msgid, message.values = msgid, values
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One wrong place in the request: a JSON pointer into the body, or the name of a query parameter or header."""

    detail: str
    code: str = "invalid"
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class DomainError(Exception):
    """A request that is refused and has changed nothing."""

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
    """The request is readable but a value is wrong: `Invalid.at("/name", "Already used.", code="taken")`."""

    code = "invalid_request"
    http_status = 400
    title = "A value in the request is wrong"

    @classmethod
    def at(cls, pointer: str, detail: str, *, code: str = "invalid") -> Invalid:
        """An error at one JSON pointer of the body."""
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
    """The thing may be seen, the act is not allowed. A foreign tenant's thing is `NotFound`, never this."""

    code = "permission_denied"
    http_status = 403
    title = "This is not allowed for you"
    # The permission that is missing, where one is.
    scope = ""


class ConfirmationNeeded(PermissionDenied):
    """A session alone is not enough for this: its owner is asked for the password or the second factor first."""

    code = "confirmation_needed"
    title = "Confirm that it is you first"


class SecondFactorNeeded(PermissionDenied):
    """The tenant, or the operator panel, is open to who has given a second factor."""

    code = "second_factor_needed"
    title = "A second factor is needed"


class QuotaExceeded(DomainError):
    """An entitlement is used up (429 is for rate only)."""

    code = "quota_exceeded"
    http_status = 403
    title = "A limit of the tenant or plan is reached"


class NotFound(DomainError):
    """Unknown and foreign are the same answer."""

    code = "not_found"
    http_status = 404
    title = "There is no such resource"


class Conflict(DomainError):
    """The state of the thing does not allow this."""

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
    """Something we need (data plane, queue) does not answer at the moment; asking again later is right."""

    code = "unavailable"
    http_status = 503
    title = "A part of the service does not answer"


class TookTooLong(Unavailable):
    """The database was given up: nothing was changed."""

    code = "took_too_long"
    title = "The answer takes too long to work out"

    def __init__(self) -> None:
        super().__init__("Ask for less at once, or again in a few seconds. Nothing was changed.", retry_after_s=5)


class OutcomeUnknown(Unavailable):
    """What was asked for may have been carried out: it was sent, and no answer has come that says.

    `asked` are the audit rows of it, which `tenants.audit` keeps though the transaction is rolled back.
    """

    code = "outcome_unknown"
    title = "It is not known whether this was carried out"
    words = (
        "No broker has said whether this was carried out. Look at it again before you repeat it; "
        "the audit log has what was asked for."
    )

    def __init__(self, detail: str = words) -> None:
        super().__init__(detail, retry_after_s=1)
        self.asked: tuple[AuditEntry, ...] = ()
