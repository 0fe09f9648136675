"""REST resources of tenants, members, invitations, tokens, audit log and limits."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from tenants import access, limits, selectors, services
from tenants.api import serializers as s
from tenants.api.base import API_ROOT, SIGNED_IN, ApiView, endpoint
from tenants.choices import ActorKind, Scope
from tenants.errors import PermissionDenied
from tenants.services.sso import configuration


class TenantCollection(ApiView):
    tag = "Tenants"

    @endpoint("list_tenants", SIGNED_IN, page_item=s.TenantOut)
    def get(self, request: Request) -> Response:
        """List the tenants you belong to.

        A token belongs to one tenant and sees only that one.
        """
        return self.page(selectors.tenants_seen_by(self.actor), s.TenantOut, order=("created_at", "id"))

    @endpoint("create_tenant", SIGNED_IN, body=s.TenantIn, returns=s.TenantOut, status=201)
    def post(self, request: Request) -> Response:
        """Create a tenant with yourself as its owner.

        Only for people signed in to the console; a token belongs to one tenant.
        """
        actor = self.actor
        if actor.kind is ActorKind.TOKEN or actor.user is None:
            raise PermissionDenied("A token cannot create tenants. Sign in to the console.")
        tenant = services.create_own_tenant(user=actor.user, name=self.body["name"], acting=actor).tenant
        return self.one(tenant, s.TenantOut, status=201, location=f"{API_ROOT}/tenants/{tenant.pk}")


class Me(ApiView):
    tag = "Tenants"

    @endpoint("get_me", SIGNED_IN, returns=s.MeOut)
    def get(self, request: Request) -> Response:
        """Read the acting user or token.

        Returns the person, the current tenant, the role in it, and the scopes: those of the role, restricted to those
        of the token.
        """
        return self.one(self.actor, s.MeOut)


class TenantResource(ApiView):
    tag = "Tenants"

    @endpoint("get_tenant", Scope.TENANT_READ, returns=s.TenantOut)
    def get(self, request: Request, tenant_id: str) -> Response:
        """Read a tenant."""
        return self.one(access.tenant(self.actor, tenant_id), s.TenantOut)

    @endpoint(
        "update_tenant",
        Scope.TENANT_WRITE,
        body=s.TenantPatch,
        returns=s.TenantOut,
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, tenant_id: str) -> Response:
        """Rename a tenant, or require a second factor of its members.

        Members without one must then set one up before anything else; tokens keep working.
        """
        tenant = access.own_tenant(self.actor, tenant_id, lock=True)
        self.require_match(tenant)
        if "name" in self.body:
            tenant = services.rename_tenant(acting=self.actor, tenant=tenant, name=self.body["name"])
        if "second_factor_required" in self.body:
            required = self.body["second_factor_required"]
            tenant = services.set_second_factor_required(acting=self.actor, tenant=tenant, required=required)
        return self.one(tenant, s.TenantOut)


class MemberCollection(ApiView):
    tag = "Members"

    @endpoint("list_members", Scope.MEMBERS_READ, page_item=s.MemberOut)
    def get(self, request: Request) -> Response:
        """List members."""
        return self.page(selectors.members(self.tenant), s.MemberOut, order=("created_at", "id"))

    @endpoint(
        "invite_member",
        Scope.MEMBERS_WRITE,
        body=s.InvitationIn,
        returns=s.InvitationMade,
        status=201,
        secret_fields=("accept_url",),
    )
    def post(self, request: Request) -> Response:
        """Invite a person.

        The response contains the link for that person. It works for their e-mail address only, for seven days. If mail
        is configured, the person also gets a link by mail, and joining by that one verifies the address. A token may
        only invite to roles whose scopes it has.
        """
        invitation, secret = services.invite_member(acting=self.actor, **self.body)
        if not self.dry_run:
            invitation.accept_url = services.invitation_url(secret)
        return self.one(invitation, s.InvitationMade, status=201, location=f"{API_ROOT}/invitations/{invitation.pk}")


class MemberResource(ApiView):
    tag = "Members"

    @endpoint("get_member", Scope.MEMBERS_READ, returns=s.MemberOut)
    def get(self, request: Request, member_id: str) -> Response:
        """Read a member."""
        return self.one(access.member(self.actor, member_id), s.MemberOut)

    @endpoint(
        "change_member_role",
        Scope.MEMBERS_WRITE,
        body=s.RolePatch,
        returns=s.MemberOut,
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, member_id: str) -> Response:
        """Change a member's role.

        Only owners assign or remove owners, and a tenant keeps at least one.
        """
        access.own_tenant(self.actor, self.tenant.pk, lock=True)  # before the member, as in the services
        member = access.member(self.actor, member_id, lock=True)
        self.require_match(member)
        return self.one(services.change_role(acting=self.actor, member=member, **self.body), s.MemberOut)

    @endpoint("remove_member", Scope.MEMBERS_READ, status=204, requires_if_match=True, errors=(409,))
    def delete(self, request: Request, member_id: str) -> Response:
        """Remove a member.

        Tokens created by the member are revoked. Also requires `members:write`, except for a person signed in to the
        console who leaves.
        """
        access.own_tenant(self.actor, self.tenant.pk, lock=True)  # before the member, as in the services
        member = access.member(self.actor, member_id, lock=True)
        self.require_match(member)
        services.remove_member(acting=self.actor, member=member)
        return self.nothing()


class InvitationCollection(ApiView):
    tag = "Members"

    @endpoint("list_invitations", Scope.MEMBERS_READ, page_item=s.InvitationOut)
    def get(self, request: Request) -> Response:
        """List open invitations."""
        return self.page(selectors.invitations(self.tenant), s.InvitationOut, order=("-created_at", "id"))


class InvitationResource(ApiView):
    tag = "Members"

    @endpoint("get_invitation", Scope.MEMBERS_READ, returns=s.InvitationOut)
    def get(self, request: Request, invitation_id: str) -> Response:
        """Read an open invitation."""
        return self.one(access.invitation(self.actor, invitation_id), s.InvitationOut)

    @endpoint("revoke_invitation", Scope.MEMBERS_WRITE, status=204, requires_if_match=True)
    def delete(self, request: Request, invitation_id: str) -> Response:
        """Revoke an invitation."""
        invitation = access.invitation(self.actor, invitation_id, lock=True)
        self.require_match(invitation)
        services.revoke_invitation(acting=self.actor, invitation=invitation)
        return self.nothing()


class InvitationAcceptance(ApiView):
    tag = "Members"

    @endpoint("accept_invitation", SIGNED_IN, body=s.InvitationAnswer, returns=s.MemberOut, status=201, errors=(404,))
    def post(self, request: Request) -> Response:
        """Accept an invitation.

        Only for people signed in to the console with the invited e-mail address.
        """
        actor = self.actor
        if actor.kind is ActorKind.TOKEN or actor.user is None:
            raise PermissionDenied("A token cannot accept invitations. Sign in to the console.")
        member = services.accept_invitation(acting=actor, user=actor.user, secret=self.body["secret"])
        return self.one(member, s.MemberOut, status=201, location=f"{API_ROOT}/members/{member.pk}")


class TokenCollection(ApiView):
    tag = "Tokens"

    @endpoint("list_tokens", Scope.TOKENS_READ, page_item=s.TokenOut)
    def get(self, request: Request) -> Response:
        """List tokens that are not revoked."""
        return self.page(selectors.tokens(self.tenant), s.TokenOut, order=("-created_at", "id"))

    @endpoint(
        "create_token", Scope.TOKENS_WRITE, body=s.TokenIn, returns=s.TokenMade, status=201, secret_fields=("secret",)
    )
    def post(self, request: Request) -> Response:
        """Create a token.

        The response contains the secret, once: a repeated response (Idempotency-Key) and later reads omit it. You must
        have the scopes yourself. A token created by a token expires with its parent at the latest and is revoked with
        it.
        """
        token, secret = services.create_token(acting=self.actor, **self.body)
        if not self.dry_run:
            token.secret = secret
        return self.one(token, s.TokenMade, status=201, location=f"{API_ROOT}/tokens/{token.pk}")


class ScopeCollection(ApiView):
    tag = "Tokens"

    @endpoint("list_scopes", SIGNED_IN, returns=s.ScopesOut)
    def get(self, request: Request) -> Response:
        """List the scopes of tokens by group, which of them you may grant, and presets of them."""
        return self.one(s.scopes_shown(access.grantable_scopes(self.actor)), s.ScopesOut)


class TokenResource(ApiView):
    tag = "Tokens"

    @endpoint("get_token", Scope.TOKENS_READ, returns=s.TokenOut)
    def get(self, request: Request, token_id: str) -> Response:
        """Read a token, without its secret."""
        return self.one(access.token(self.actor, token_id), s.TokenOut)

    @endpoint("revoke_token", Scope.TOKENS_WRITE, status=204)
    def delete(self, request: Request, token_id: str) -> Response:
        """Revoke a token.

        It stops working immediately and permanently, as do the tokens and open invitations that were created with it.
        """
        services.revoke_token(acting=self.actor, token=access.token(self.actor, token_id, lock=True))
        return self.nothing()


class SsoResource(ApiView):
    tag = "Members"

    @endpoint("get_sso", Scope.MEMBERS_READ, returns=s.SsoOut, errors=(404,))
    def get(self, request: Request) -> Response:
        """Read the tenant's single sign-on, without its secret."""
        return self.one(configuration(self.actor), s.SsoOut)

    @endpoint("set_sso", Scope.MEMBERS_WRITE, body=s.SsoIn, returns=s.SsoOut)
    def put(self, request: Request) -> Response:
        """Set the tenant's single sign-on by OpenID Connect.

        The provider is asked for its configuration first; with dry_run that is a test. Members sign in with an address
        of a proved domain (`prove_domain`) that the provider calls verified: members are linked, invited people join,
        and others get an account if the role claim gives them a role. The claim decides the role at each sign-in;
        without a mapped value the sign-in is refused. Owners and operators never sign in this way. A token needs every
        scope of an admin.
        """
        return self.one(services.set_sso(acting=self.actor, **self.body), s.SsoOut)

    @endpoint("remove_sso", Scope.MEMBERS_WRITE, status=204, errors=(404,))
    def delete(self, request: Request) -> Response:
        """Remove the tenant's single sign-on; members sign in by password or passkey again."""
        services.remove_sso(acting=self.actor)
        return self.nothing()


class SsoDomainProof(ApiView):
    tag = "Members"

    @endpoint("prove_domain", Scope.MEMBERS_WRITE, body=s.SsoDomainIn, returns=s.SsoDomainOut, errors=(409, 503))
    def post(self, request: Request) -> Response:
        """Prove that the tenant controls an e-mail domain.

        Set the TXT record that `domain_proofs` of GET /sso names, then call this: the DNS is asked, and 409
        `record_missing` says that it does not have the record yet. Addresses of the domain may sign in from then on.
        Leave the record: it is looked for once a day, and a domain whose record is gone for a week is unproved.
        """
        return self.one(services.prove_domain(acting=self.actor, domain=self.body["domain"]), s.SsoDomainOut)


class AuditCollection(ApiView):
    tag = "Audit"

    @endpoint("list_audit_entries", Scope.AUDIT_READ, query=s.AuditFilter, page_item=s.AuditOut)
    def get(self, request: Request) -> Response:
        """Read the audit log, latest first."""
        names = ("action", "actor_kind", "actor_id", "target_id", "ip", "since", "until")
        rows = selectors.audit_entries(self.tenant, **{name: self.query.get(name) for name in names})
        return self.page(rows, s.AuditOut, order=("-time", "-id"))


class LimitCollection(ApiView):
    tag = "Limits"

    @endpoint("list_limits", Scope.TENANT_READ, page_item=s.LimitOut)
    def get(self, request: Request) -> Response:
        """List the limits of the service by name."""
        return self.page_items(limits.registered(), s.LimitOut, key=_name)


def _name(limit: Any) -> str:
    return str(limit.name)
