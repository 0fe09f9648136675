"""Passwords are changed in the sign-in library's own pages; what it tells of that goes into the audit log."""

from __future__ import annotations

from typing import Any

from allauth.account import signals
from django.http import HttpRequest

from tenants import audit
from tenants.actors import user_actor
from tenants.models import User
from tenants.requests import client_ip


def connect() -> None:
    """Listen to a password that is changed, set for the first time, or set anew by a link from an e-mail."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_record, dispatch_uid="tenants.password_changes")


def _record(request: HttpRequest, user: User, **_: Any) -> None:
    acting = user_actor(user, ip=client_ip(request), request_id=getattr(request, "request_id", None))
    audit.record(acting, "password.changed", user, None, {"email": user.email})
