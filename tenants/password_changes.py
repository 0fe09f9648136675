"""Passwords are changed in the sign-in library's own pages; what it tells of that goes into the audit log."""

from __future__ import annotations

from typing import Any

from allauth.account import signals
from django.http import HttpRequest

from tenants import audit, services, sign_in
from tenants.models import User
from tenants.requests import acting_person
from tenants.sign_in import Entrance


def connect() -> None:
    """Listen to a password that is changed, set for the first time, or set anew by a link from an e-mail."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_record, dispatch_uid="tenants.password_changes")
    signals.password_reset.connect(_came_by_mail, dispatch_uid="tenants.password_changes.mail")


def _record(request: HttpRequest, user: User, **_: Any) -> None:
    """Other sessions are of no use any more, as they know the former password; the person's list has them no more."""
    acting = acting_person(request, user)
    audit.record(acting, "password.changed", user, None, {"email": user.email})
    services.end_sessions_of(acting=acting, user=user, except_key=request.session.session_key)


def _came_by_mail(request: HttpRequest, user: User, **_: Any) -> None:
    """Who follows a link out of a mail has the mailbox, and is no longer kept out by what others have tried."""
    services.verify_mailbox(acting=acting_person(request, user), user=user)
    for entrance in (Entrance.CONSOLE, Entrance.OPERATOR):
        sign_in.forget_failures(request, entrance, user.email)
