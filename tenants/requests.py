"""What a request says of who acts: its user in the chosen tenant, and the address it came from."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest

from tenants import selectors, sessions
from tenants.actors import Actor, member_actor, user_actor
from tenants.errors import Unauthenticated
from tenants.models import User

IP_CHARS_MAX = 45


def client_ip(request: HttpRequest) -> str | None:
    """The client's address: `config.middleware` has put it into REMOTE_ADDR, if need be by a trusted proxy's word."""
    address = request.META.get("REMOTE_ADDR") or None
    return address[:IP_CHARS_MAX] if address else None


def acting_person(request: HttpRequest, user: User) -> Actor:
    """A person who acts on their own account, in no tenant."""
    return user_actor(user, ip=client_ip(request), request_id=getattr(request, "request_id", None))


def actor_of(request: HttpRequest) -> Actor:
    """The actor of a console request: the signed-in user in the chosen tenant.

    Raises `Unauthenticated` without a session. The chosen tenant is `request.session["tenant_id"]`
    (`selectors.chosen_member`), else the oldest membership; a user without tenants acts outside any.
    """
    user = request.user
    if not user.is_authenticated:
        raise Unauthenticated("Sign in first.")
    ip, request_id = client_ip(request), getattr(request, "request_id", None)
    member = selectors.chosen_member(user, request.session.get("tenant_id"))
    if member is None:
        return of_session(request, user_actor(user, ip=ip, request_id=request_id))
    return of_session(request, member_actor(member, ip=ip, request_id=request_id))


def of_session(request: HttpRequest, acting: Actor) -> Actor:
    """The same actor, with what the request's session says: how lately it was confirmed."""
    return acting if sessions.is_confirmed(request) else replace(acting, is_confirmed=False)
