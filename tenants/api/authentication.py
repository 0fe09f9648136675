"""Authentication by Bearer token or by the console's session (with CSRF protection).

A secret is looked up by its SHA-256, so timing could leak only a hash; the comparison is constant-time nevertheless.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied as DrfPermissionDenied
from rest_framework.request import Request

from tenants import selectors, services, sessions
from tenants.actors import Actor, member_actor, token_actor, user_actor
from tenants.errors import PermissionDenied, Unauthenticated
from tenants.requests import client_ip, with_session_state
from tenants.second_factor import gate
from tenants.secrets import hash_secret

SCHEME = "bearer"
TOKEN_CHARS_MAX = 128
TENANT_HEADER = "Penstock-Tenant"


class TokenAuthentication(BaseAuthentication):
    """Authentication by the header `Authorization: Bearer pst_…`."""

    def authenticate(self, request: Request) -> tuple[Any, Actor] | None:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        scheme, _, secret = header.partition(" ")
        secret = secret.strip()
        if scheme.lower() != SCHEME or not secret or len(secret) > TOKEN_CHARS_MAX:
            raise Unauthenticated("Send the header Authorization: Bearer <token>.")
        digest = hash_secret(secret)
        token = selectors.live_token(digest, timezone.now())
        if token is None or not constant_time_compare(token.secret_hash, digest):
            raise Unauthenticated("The token is unknown, expired or revoked.")
        http = request._request
        if http.headers.get(TENANT_HEADER, token.tenant_id) != token.tenant_id:
            raise PermissionDenied(f"The tenant in {TENANT_HEADER} is not the token's.", code="no_tenant")
        services.record_token_use(token, timezone.now())
        actor = token_actor(token, ip=client_ip(http), request_id=getattr(http, "request_id", None))
        return token.member.user, actor

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="penstock"'


class ConsoleAuthentication(SessionAuthentication):
    """Authentication by session, in the tenant of the header `Penstock-Tenant`, or else the one chosen in
    the console.
    """

    def authenticate(self, request: Request) -> tuple[Any, Actor] | None:
        try:
            result = super().authenticate(request)
        except DrfPermissionDenied as refusal:
            raise PermissionDenied(str(refusal.detail), code="csrf_failed") from None
        if result is None:
            return None
        user = result[0]
        return user, session_actor(request._request, user)


def session_actor(request: HttpRequest, user: Any) -> Actor:
    """Returns the actor of a session call; an unknown or foreign tenant in the header is refused, not replaced."""
    ip, request_id = client_ip(request), getattr(request, "request_id", None)
    requested_id = request.headers.get(TENANT_HEADER)
    member = selectors.chosen_member(
        user, requested_id or request.session.get("tenant_id"), confined_to=sessions.sso_tenant_of(request)
    )
    if requested_id and (member is None or member.tenant_id != requested_id):
        raise PermissionDenied(f"The tenant in {TENANT_HEADER} is not one of yours.", code="no_tenant")
    acting = (
        user_actor(user, ip=ip, request_id=request_id)
        if member is None
        else member_actor(member, ip=ip, request_id=request_id)
    )
    acting = with_session_state(request, acting)
    gate.require(request, acting)
    return acting
