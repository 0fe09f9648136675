"""Session of a request: last use, last confirmation by password or factor, and use of a second factor.

The values are bound to the account: a session never changes its owner (`django.contrib.auth.login` empties it), and
values written before sign-in name their account.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest

from tenants.limits import (
    SESSION_SEEN_EVERY_S,
    SSO_ID_TOKEN_HINT_CHARS_MAX,
    SSO_SESSION_HOURS_MAX,
    USER_AGENT_CHARS_MAX,
)
from tenants.models import Session, User

CONFIRMED_AT_S = "confirmed_at_s"
SECOND_FACTOR_OF = "second_factor_of"
SSO_TENANT = "sso_tenant_id"
SSO_UNTIL_S = "sso_until_s"
SSO_HINT = "sso_id_token"  # sent as `id_token_hint` when the session at the provider is ended
SIGN_IN_PLACE = "sign_in_place"  # place where this session began, if it was new to its owner


def confirm(request: HttpRequest) -> None:
    """Marks the session as confirmed: its owner has just signed in or reauthenticated."""
    request.session[CONFIRMED_AT_S] = int(time.time())


def is_confirmed(request: HttpRequest) -> bool:
    """True if the session was confirmed recently enough for actions that must not be done with a stolen session."""
    confirmed_at_s = request.session.get(CONFIRMED_AT_S)
    return isinstance(confirmed_at_s, int) and 0 <= time.time() - confirmed_at_s < settings.REAUTHENTICATION_S


def begin_sso(request: HttpRequest, tenant_id: str, id_token: str) -> None:
    """Confines the session to a tenant whose identity provider has signed the user in, and limits its lifetime."""
    request.session[SSO_HINT] = id_token if len(id_token) <= SSO_ID_TOKEN_HINT_CHARS_MAX else ""
    request.session[SSO_TENANT] = tenant_id
    request.session[SSO_UNTIL_S] = int(time.time()) + SSO_SESSION_HOURS_MAX * 3_600
    request.session.pop(SECOND_FACTOR_OF, None)


def end_sso(request: HttpRequest) -> None:
    """Removes the confinement to a tenant, because the owner has just signed in with a password or passkey."""
    for name in (SSO_TENANT, SSO_UNTIL_S, SSO_HINT):
        request.session.pop(name, None)


def sso_tenant_of(request: HttpRequest) -> str | None:
    """Returns the tenant to which the session is confined, because that tenant's identity provider began it."""
    tenant_id = request.session.get(SSO_TENANT)
    return tenant_id if isinstance(tenant_id, str) else None


def sso_id_token_of(request: HttpRequest) -> str:
    """Returns the ID token that began the session of single sign-on; "" if it was too long for a URL."""
    return str(request.session.get(SSO_HINT, ""))


def has_sso_expired(request: HttpRequest) -> bool:
    """True if single sign-on has expired in this session, so that its user must sign in at the provider again."""
    until_s = request.session.get(SSO_UNTIL_S)
    return not isinstance(until_s, int) or time.time() >= until_s


def record_second_factor(request: HttpRequest, user: User) -> None:
    """Records that the account's second factor was verified or set up in this session."""
    request.session[SECOND_FACTOR_OF] = user.pk


def clear_second_factor(request: HttpRequest) -> None:
    """Removes the record of a second factor, because the account has none any more."""
    request.session.pop(SECOND_FACTOR_OF, None)


def has_second_factor(request: HttpRequest) -> bool:
    """True if the second factor was verified in this session.

    True also means that the account has a factor, which needs no query: such an account can only be signed in
    to with the factor, and its other sessions end when it gets the first one.
    """
    return request.user.is_authenticated and request.session.get(SECOND_FACTOR_OF) == request.user.pk


def user_agent_of(request: HttpRequest) -> str:
    """Returns the User-Agent header as it is stored."""
    return request.headers.get("User-Agent", "").replace("\x00", "")[:USER_AGENT_CHARS_MAX]


def is_by_a_person(request: HttpRequest) -> bool:
    """False for automatic requests of an open page: an open tab must not keep a session alive."""
    if request.method not in ("GET", "HEAD"):
        return True
    return "HX-Request" not in request.headers and request.headers.get("Accept") != "application/json"


def record_seen(request: HttpRequest, ip: str | None, now: datetime) -> None:
    """Records when and from where a session was seen, with a resolution of a minute; skipped if no view used the
    session.
    """
    session: Any = request.session
    if not session.accessed or session.session_key is None or session.get(SESSION_KEY) is None:
        return
    row = session.row
    is_known = row is not None and row.session_key == session.session_key and row.ip is not None
    if is_known and not (is_by_a_person(request) and row.last_seen_at <= now - timedelta(seconds=SESSION_SEEN_EVERY_S)):
        return
    Session.objects.filter(session_key=session.session_key).update(
        last_seen_at=now, ip=ip, user_agent=user_agent_of(request)
    )
