"""Guarantees of every endpoint of the tenants app."""

from __future__ import annotations

import pytest

from tenants import services
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import Member
from tests.testkit.api_cases import Case, EndpointCases, make_member, pytest_generate_tests

__all__ = ["pytest_generate_tests"]


@pytest.mark.django_db
class TestEndpointsOfTenants(EndpointCases):
    cases = (
        Case("GET", "/tenants/{tenant}", Scope.TENANT_READ),
        Case("PATCH", "/tenants/{tenant}", Scope.TENANT_WRITE, body={"name": "Another name"}),
        Case("GET", "/members", Scope.MEMBERS_READ),
        Case("POST", "/members", Scope.MEMBERS_WRITE, body={"email": "new@example.com", "role": "viewer"}, status=201),
        Case("GET", "/members/{member}", Scope.MEMBERS_READ),
        Case("PATCH", "/members/{member}", Scope.MEMBERS_WRITE, body={"role": "viewer"}),
        Case("DELETE", "/members/{member}", Scope.MEMBERS_WRITE, status=204),
        Case("GET", "/invitations", Scope.MEMBERS_READ),
        Case("GET", "/invitations/{invitation}", Scope.MEMBERS_READ),
        Case("DELETE", "/invitations/{invitation}", Scope.MEMBERS_WRITE, status=204),
        Case("GET", "/tokens", Scope.TOKENS_READ),
        Case("POST", "/tokens", Scope.TOKENS_WRITE, body={"name": "ci", "scopes": ["members:read"]}, status=201),
        Case("GET", "/tokens/{token}", Scope.TOKENS_READ),
        Case("DELETE", "/tokens/{token}", Scope.TOKENS_WRITE, status=204),
        Case("GET", "/audit", Scope.AUDIT_READ),
        Case("GET", "/limits", Scope.TENANT_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        acting = member_actor(owner)
        token, _ = services.create_token(acting=acting, name="held", scopes=["members:read"])
        invitation, _ = services.invite_member(acting=acting, email="invited@example.com", role="developer")
        return {
            "tenant": owner.tenant.pk,
            "member": make_member(Role.DEVELOPER, owner.tenant).pk,
            "invitation": invitation.pk,
            "token": token.pk,
        }
