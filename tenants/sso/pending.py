"""Sign-in in progress: values that the callback must match, in a signed cookie of the browser that began it.

No row is written before a person has signed in, so visitors and robots cause none. The cookie is removed when it is
used: a state of another browser, of another tenant, or of an earlier sign-in is unknown.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from hmac import compare_digest

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from tenants.limits import SSO_STARTED_MINUTES

COOKIE = "penstock_sso"
SALT = "penstock.sso"
PATH = "/sso/"
RANDOM_BYTES = 32
NEXT_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """State, nonce and PKCE verifier of one sign-in at one version of a tenant's configuration.

    `onward` is the path to which the browser is sent after the sign-in.
    """

    sso_id: str
    version: int
    state: str
    nonce: str
    verifier: str
    onward: str


def new_sign_in(sso_id: str, version: int, onward: str) -> PendingSignIn:
    """Returns a sign-in with new random values."""
    state, nonce, verifier = (secrets.token_urlsafe(RANDOM_BYTES) for _ in range(3))
    return PendingSignIn(sso_id, version, state, nonce, verifier, onward if len(onward) <= NEXT_CHARS_MAX else "/")


def set_cookie(response: HttpResponse, pending: PendingSignIn) -> None:
    """Stores the sign-in in the cookie, for `SSO_STARTED_MINUTES`."""
    response.set_cookie(
        COOKIE, signing.dumps(asdict(pending), salt=SALT), max_age=SSO_STARTED_MINUTES * 60, path=PATH,
        httponly=True, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax",
    )  # fmt: skip


def read_cookie(request: HttpRequest, sso_id: str, version: int, state: str) -> PendingSignIn | None:
    """Returns the sign-in that this browser began with this state and this configuration; None if there is none."""
    try:
        pending = PendingSignIn(
            **signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=SSO_STARTED_MINUTES * 60)
        )
    except (signing.BadSignature, ValueError, TypeError):
        return None
    matches = compare_digest(pending.state.encode(), state.encode()) and (pending.sso_id, pending.version) == (
        sso_id,
        version,
    )
    return pending if matches else None


def delete_cookie(response: HttpResponse) -> None:
    """Removes the cookie."""
    response.delete_cookie(COOKIE, path=PATH, samesite="Lax")
