"""Actors of requests: the user in the chosen tenant, and the client address."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest

from tenants import selectors, sessions
from tenants.actors import Actor, member_actor, user_actor
from tenants.errors import Unauthenticated
from tenants.models import User

IP_CHARS_MAX = 45


def client_ip(request: HttpRequest) -> str | None:
    """Returns the client's address: `config.middleware` sets REMOTE_ADDR, considering trusted proxies."""
    address = request.META.get("REMOTE_ADDR") or None
    return address[:IP_CHARS_MAX] if address else None


def acting_person(request: HttpRequest, user: User) -> Actor:
    """Returns the actor of a person acting on their own account, outside any tenant."""
    return user_actor(user, ip=client_ip(request), request_id=getattr(request, "request_id", None))


def actor_of(request: HttpRequest) -> Actor:
    """Returns the actor of a console request: the signed-in user in the chosen tenant.

    Raises `Unauthenticated` without a session. The chosen tenant is `request.session["tenant_id"]`
    (`selectors.chosen_member`), or else that of the oldest membership; a user without tenants acts outside any.
    """
    user = request.user
    if not user.is_authenticated:
        raise Unauthenticated("Sign in first.")
    ip, request_id = client_ip(request), getattr(request, "request_id", None)
    confined_to = sessions.sso_tenant_of(request)
    member = selectors.chosen_member(user, request.session.get("tenant_id"), confined_to=confined_to)
    if member is None:
        return with_session_state(request, user_actor(user, ip=ip, request_id=request_id))
    return with_session_state(request, member_actor(member, ip=ip, request_id=request_id))


def with_session_state(request: HttpRequest, acting: Actor) -> Actor:
    """Returns the actor with what the request's session adds: its confirmation, its confinement to a tenant, and
    whether the second factor was given.
    """
    return replace(
        acting,
        is_confirmed=sessions.is_confirmed(request),
        is_confined=sessions.sso_tenant_of(request) is not None,
        gave_second_factor=sessions.has_second_factor(request),
    )
