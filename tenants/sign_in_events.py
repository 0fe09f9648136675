"""Consequences of any sign-in: its session is confirmed, and a new place is reported to its owner."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest

from tenants import counting, services, sessions
from tenants.models import User
from tenants.requests import acting_person


def connect() -> None:
    """Connects to Django's signal, which all kinds of sign-in send."""
    user_logged_in.connect(_signed_in, dispatch_uid="tenants.sign_in_events")


def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    sessions.end_sso(request)  # the view of single sign-on confines the session after this
    sessions.confirm(request)
    place = services.record_sign_in(
        acting=acting_person(request, user), user=user, network=counting.network_of(request),
        user_agent=sessions.user_agent_of(request),
    )  # fmt: skip
    if place is not None:
        request.session[sessions.SIGN_IN_PLACE] = place.pk
    services.end_excess_sessions(user=user, new_key=request.session.session_key)
