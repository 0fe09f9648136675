"""Audit entries for password changes on the sign-in library's pages."""

from __future__ import annotations

from typing import Any

from allauth.account import signals
from django.http import HttpRequest

from tenants import audit, services, sign_in
from tenants.models import User
from tenants.requests import acting_person
from tenants.sign_in import LoginScope


def connect() -> None:
    """Connects to signals of passwords that are changed, set for the first time, or reset by a mailed link."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_on_password_changed, dispatch_uid="tenants.password_changes")
    signals.password_reset.connect(_on_reset_by_mail, dispatch_uid="tenants.password_changes.mail")


def _on_password_changed(request: HttpRequest, user: User, **_: Any) -> None:
    """Records the change and ends the person's other sessions, which became invalid with the former password."""
    acting = acting_person(request, user)
    audit.record(acting, "password.changed", user, None, {"email": user.email})
    services.end_sessions_of(acting=acting, user=user, except_key=request.session.session_key)


def _on_reset_by_mail(request: HttpRequest, user: User, **_: Any) -> None:
    """Verifies the mailbox after a reset by a mailed link, and clears failed attempts of others."""
    services.verify_mailbox(acting=acting_person(request, user), user=user)
    for scope in (LoginScope.CONSOLE, LoginScope.OPERATOR):
        sign_in.clear_failures(request, scope, user.email)
