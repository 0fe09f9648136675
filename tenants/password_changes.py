"""Passwords are changed in the sign-in library's own pages; what it tells of that goes into the audit log."""

from __future__ import annotations

from typing import Any

from allauth.account import signals
from django.http import HttpRequest

from tenants import audit, services, sign_in
from tenants.actors import Actor, user_actor
from tenants.models import User
from tenants.requests import client_ip
from tenants.sign_in import Entrance


def connect() -> None:
    """Listen to a password that is changed, set for the first time, or set anew by a link from an e-mail."""
    for signal in (signals.password_changed, signals.password_set, signals.password_reset):
        signal.connect(_record, dispatch_uid="tenants.password_changes")
    signals.password_reset.connect(_came_by_mail, dispatch_uid="tenants.password_changes.mail")


def _record(request: HttpRequest, user: User, **_: Any) -> None:
    audit.record(_acting(request, user), "password.changed", user, None, {"email": user.email})


def _came_by_mail(request: HttpRequest, user: User, **_: Any) -> None:
    """Who follows a link out of a mail has the mailbox, and is no longer kept out by what others have tried."""
    services.verify_mailbox(acting=_acting(request, user), user=user)
    for entrance in Entrance:
        sign_in.forget_failures(request, entrance, user.email)


def _acting(request: HttpRequest, user: User) -> Actor:
    return user_actor(user, ip=client_ip(request), request_id=getattr(request, "request_id", None))
