"""What a request says of who acts: its user in the chosen tenant, and the address it came from."""

from __future__ import annotations

from django.http import HttpRequest

from tenants import selectors
from tenants.actors import Actor, member_actor, user_actor
from tenants.errors import Unauthenticated

IP_CHARS_MAX = 45


def client_ip(request: HttpRequest) -> str | None:
    """The client's address: `config.middleware` has put it into REMOTE_ADDR, if need be by a trusted proxy's word."""
    address = request.META.get("REMOTE_ADDR") or None
    return address[:IP_CHARS_MAX] if address else None


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
        return user_actor(user, ip=ip, request_id=request_id)
    return member_actor(member, ip=ip, request_id=request_id)
