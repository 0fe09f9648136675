"""Serializers of the endpoints of this app."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tenants import access, scope_groups, selectors
from tenants.actors import Actor
from tenants.api.strict import Choice, Flag, Instant, StrictSerializer, Text
from tenants.choices import SSO_ROLES, ActorKind, Role, Scope
from tenants.limits import (
    AUDIT_REF_CHARS_MAX,
    DOMAIN_CHARS_MAX,
    NAME_CHARS_MAX,
    SSO_CLAIM_CHARS_MAX,
    SSO_DOMAINS_MAX,
    SSO_ROLE_VALUES_MAX,
    SSO_TEXT_CHARS_MAX,
)
from tenants.models import ApiToken, AuditEntry, DomainProof, Invitation, Member, SsoConfiguration, Tenant
from tenants.services.sso_domains import proofs_of
from tenants.sso import domains


class TenantOut(serializers.ModelSerializer[Tenant]):
    role = serializers.SerializerMethodField(help_text="Your role in it.")

    suspension_reason = serializers.SerializerMethodField(help_text="Null while the tenant is active.")
    second_factor_required = serializers.BooleanField(
        source="requires_second_factor", help_text="Whether members work here only after giving a second factor."
    )
    members_without_second_factor = serializers.SerializerMethodField(
        help_text="E-mail addresses of members who have none: while it is required they set one up before anything "
        "else. For owners working in the tenant; null for others."
    )

    class Meta:
        model = Tenant
        fields = ("id", "slug", "name", "currency", "status", "suspension_reason", "suspension_note", "role",
                  "second_factor_required", "members_without_second_factor", "created_at", "updated_at")  # fmt: skip

    def get_members_without_second_factor(self, tenant: Tenant) -> list[str] | None:
        actor = self.context["actor"]
        is_owner_here = actor.tenant is not None and actor.tenant.pk == tenant.pk and actor.role is Role.OWNER
        return selectors.members_without_factor(tenant) if is_owner_here else None

    def get_suspension_reason(self, tenant: Tenant) -> str | None:
        return tenant.suspension_reason or None

    def get_role(self, tenant: Tenant) -> str | None:
        """Returns the role from the annotated list of tenants, or else from the actor."""
        annotated_role: str | None = getattr(tenant, "own_role", None)
        if annotated_role is not None:
            return annotated_role
        actor = self.context["actor"]
        return actor.role.value if actor.role and actor.tenant and actor.tenant.pk == tenant.pk else None


class MeUserOut(serializers.Serializer):
    """Person."""

    id = serializers.CharField(source="pk")
    email = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    language = serializers.CharField()
    time_zone = serializers.CharField()


class MeTenantOut(serializers.Serializer):
    """Tenant by id and names."""

    id = serializers.CharField(source="pk")
    slug = serializers.CharField()
    name = serializers.CharField()
    status = serializers.CharField()


class MeOut(serializers.Serializer):
    """Acting person or token, with its tenant and permissions."""

    kind = serializers.CharField(help_text="`user` in a session of the console, `token` with one.")
    user = MeUserOut(allow_null=True)
    tenant = MeTenantOut(allow_null=True, help_text="Null for a person who belongs to none.")
    role = serializers.CharField(allow_null=True)
    scopes = serializers.SerializerMethodField(help_text="What calls may do, sorted.")
    token_id = serializers.SerializerMethodField(help_text="Null for a session of the console.")

    def get_scopes(self, actor: Actor) -> list[str]:
        return sorted(access.scopes_of(actor))

    def get_token_id(self, actor: Actor) -> str | None:
        return actor.id if actor.kind is ActorKind.TOKEN else None


class TenantIn(StrictSerializer):
    name = Text(max_length=NAME_CHARS_MAX, help_text="Shown in the console and on invoices.")


class TenantPatch(StrictSerializer):
    name = Text(max_length=NAME_CHARS_MAX, required=False)
    second_factor_required = Flag(
        required=False,
        help_text="For owners who have one themselves. With dry_run, members_without_second_factor of the answer says "
        "whom it would stop.",
    )


class MemberOut(serializers.ModelSerializer[Member]):
    email = serializers.CharField(source="user.email")
    name = serializers.CharField(source="user.name")
    user_id = serializers.CharField()

    class Meta:
        model = Member
        fields = ("id", "user_id", "email", "name", "role", "created_at", "updated_at")


class InvitationIn(StrictSerializer):
    email = serializers.EmailField(max_length=254)
    role = Choice(choices=Role.choices)


class RolePatch(StrictSerializer):
    role = Choice(choices=Role.choices)


class InvitationOut(serializers.ModelSerializer[Invitation]):
    invited_by = serializers.CharField(source="invited_by.user.email")

    class Meta:
        model = Invitation
        fields = ("id", "email", "role", "invited_by", "created_at", "expires_at")


class InvitationMade(InvitationOut):
    accept_url = serializers.SerializerMethodField(help_text="Give it to the invited person; it is not shown again.")

    class Meta(InvitationOut.Meta):
        fields = (*InvitationOut.Meta.fields, "accept_url")

    def get_accept_url(self, invitation: Invitation) -> str | None:
        return getattr(invitation, "accept_url", None)


class InvitationAnswer(StrictSerializer):
    secret = Text(max_length=128, help_text="The last part of the invitation link.")


class TokenIn(StrictSerializer):
    name = Text(max_length=NAME_CHARS_MAX)
    scopes = serializers.ListField(
        child=Choice(choices=[(scope.value, scope.label) for scope in Scope if scope.value in access.TOKEN_SCOPES]),
        min_length=1,
        max_length=len(access.TOKEN_SCOPES),
    )
    expires_at = Instant(required=False, allow_null=True, help_text="Never, when left out.")


class ScopeOut(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()
    is_grantable = serializers.BooleanField(help_text="You may make a token with it.")


class ScopeGroupOut(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()
    scopes = ScopeOut(many=True)


class ScopePresetOut(serializers.Serializer):
    name = serializers.CharField()
    label = serializers.CharField()
    description = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField(), help_text="Those that you may give, sorted.")


class ScopesOut(serializers.Serializer):
    """Scopes of tokens: each in one group, and presets of them."""

    groups = ScopeGroupOut(many=True)
    presets = ScopePresetOut(many=True)


def scopes_shown(granted: frozenset[str]) -> dict[str, Any]:
    """Returns all groups and presets for an actor who may grant the scopes in `granted`."""
    groups = [
        {
            "name": group.name,
            "label": group.label,
            "scopes": [
                {"name": scope.value, "label": scope.label, "is_grantable": scope.value in granted}
                for scope in group.scopes
            ],
        }
        for group in scope_groups.GROUPS
    ]
    presets = [
        {
            "name": preset.name,
            "label": preset.label,
            "description": preset.help_text,
            "scopes": scope_groups.preset_scopes(preset.name, granted),
        }
        for preset in scope_groups.PRESETS
    ]
    return {"groups": groups, "presets": presets}


class TokenOut(serializers.ModelSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.CharField())
    created_by = serializers.CharField(source="member.user.email")

    class Meta:
        model = ApiToken
        fields = ("id", "name", "prefix", "scopes", "created_by", "created_at", "expires_at", "last_used_at")


class TokenMade(TokenOut):
    secret = serializers.SerializerMethodField(help_text="The token itself. It is shown this once.")

    class Meta(TokenOut.Meta):
        fields = (*TokenOut.Meta.fields, "secret")

    def get_secret(self, token: ApiToken) -> str | None:
        return getattr(token, "secret", None)


class AuditActor(serializers.Serializer[Any]):
    kind = serializers.CharField(source="actor_kind")
    id = serializers.CharField(source="actor_id")
    name = serializers.CharField(source="actor_label")


class AuditTarget(serializers.Serializer[Any]):
    type = serializers.CharField(source="target_type")
    id = serializers.CharField(source="target_id")


class AuditOut(serializers.ModelSerializer[AuditEntry]):
    actor = AuditActor(source="*")
    target = AuditTarget(source="*")
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    context = serializers.DictField(
        allow_null=True,
        help_text="Of what a Kafka client did: `client_id`, `route`, `broker`; `requests` and `until` where several "
        "are told of together; `more` and `failed` where a request had more than is named.",
    )

    class Meta:
        model = AuditEntry
        fields = ("id", "time", "actor", "action", "target", "before", "after", "request_id", "ip", "context")


class AuditFilter(StrictSerializer):
    action = serializers.CharField(required=False, max_length=64, help_text="For example `token.created`.")
    actor_kind = serializers.ChoiceField(
        required=False, choices=ActorKind.choices, help_text="`client` is what Kafka clients did."
    )
    actor_id = serializers.CharField(
        required=False, max_length=AUDIT_REF_CHARS_MAX, help_text="Of a Kafka client `ins-…/users/reader`."
    )
    target_id = serializers.CharField(required=False, max_length=AUDIT_REF_CHARS_MAX)
    ip = serializers.IPAddressField(required=False, help_text="The address it was done from.")
    since = serializers.DateTimeField(required=False, help_text="From this instant on.")
    until = serializers.DateTimeField(required=False, help_text="Before this instant.")


class SsoRole(StrictSerializer):
    value = Text(max_length=SSO_CLAIM_CHARS_MAX, help_text="A value of the claim, compared exactly.")
    role = Choice(choices=SSO_ROLES)


class SsoIn(StrictSerializer):
    issuer = Text(max_length=SSO_TEXT_CHARS_MAX, help_text="Exactly as the provider names itself, with https://.")
    client_id = Text(max_length=SSO_TEXT_CHARS_MAX)
    client_secret = Text(
        max_length=SSO_TEXT_CHARS_MAX, required=False,
        help_text="Never shown again. Left out: the stored one stays, if issuer and client id do.",
    )  # fmt: skip
    domains = serializers.ListField(
        child=Text(max_length=DOMAIN_CHARS_MAX), min_length=1, max_length=SSO_DOMAINS_MAX,
        help_text="E-mail domains whose addresses may sign in, once each is proved (prove_domain).",
    )  # fmt: skip
    role_claim = Text(
        max_length=SSO_CLAIM_CHARS_MAX, allow_blank=True, required=False,
        help_text="Claim of the ID token with groups or roles; dots lead into objects. Empty: roles stay.",
    )  # fmt: skip
    roles = SsoRole(many=True, required=False, max_length=SSO_ROLE_VALUES_MAX)
    required = Flag(
        required=False, help_text="Members but owners work in the tenant only in sessions of single sign-on."
    )
    assume_email_verified = Flag(
        required=False,
        help_text="An ID token without email_verified counts as one that has true; false is refused. Danger: who can "
        "write an address at the provider signs in as the member who has it.",
    )  # fmt: skip


class SsoDomainIn(StrictSerializer):
    domain = Text(max_length=DOMAIN_CHARS_MAX, help_text="One of the domains of single sign-on.")


class SsoDomainOut(serializers.ModelSerializer[DomainProof]):
    record_name = serializers.SerializerMethodField(help_text="Name of the TXT record that proves the domain.")
    record_value = serializers.SerializerMethodField(help_text="Its content; other records beside it do no harm.")
    proved_at = serializers.DateTimeField(allow_null=True, help_text="Null: its addresses may not sign in yet.")
    missing_since = serializers.DateTimeField(
        allow_null=True, help_text="Since when the record of a proved domain is gone. A week later it is unproved."
    )

    class Meta:
        model = DomainProof
        fields = ("domain", "record_name", "record_value", "proved_at", "checked_at", "missing_since")

    def get_record_name(self, proof: DomainProof) -> str:
        return domains.record_name(proof.domain)

    def get_record_value(self, proof: DomainProof) -> str:
        return domains.record_value(proof.challenge)


class SsoOut(serializers.ModelSerializer[SsoConfiguration]):
    domains = serializers.ListField(child=serializers.CharField())
    roles = serializers.SerializerMethodField()
    required = serializers.BooleanField(source="tenant.requires_sso")
    sign_in_path = serializers.SerializerMethodField(help_text="Path of the console where a sign-in begins.")
    redirect_path = serializers.SerializerMethodField(help_text="Path of the redirect URI to register.")
    ended_path = serializers.SerializerMethodField(help_text="Path of the post-logout redirect URI to register.")
    domain_proofs = serializers.SerializerMethodField(help_text="DNS records of the domains, and which are proved.")

    class Meta:
        model = SsoConfiguration
        fields = ("issuer", "client_id", "domains", "domain_proofs", "role_claim", "roles", "required",
                  "assume_email_verified", "sign_in_path", "redirect_path", "ended_path", "created_at",
                  "updated_at")  # fmt: skip

    @extend_schema_field(SsoDomainOut(many=True))
    def get_domain_proofs(self, sso: SsoConfiguration) -> list[Any]:
        return list(SsoDomainOut(proofs_of(sso.tenant), many=True).data)

    @extend_schema_field(SsoRole(many=True))
    def get_roles(self, sso: SsoConfiguration) -> list[dict[str, str]]:
        return [{"value": value, "role": role} for value, role in sorted(sso.roles.items())]

    def get_sign_in_path(self, sso: SsoConfiguration) -> str:
        return f"/sso/{sso.tenant.slug}/"

    def get_redirect_path(self, sso: SsoConfiguration) -> str:
        return f"/sso/{sso.tenant.slug}/callback/"

    def get_ended_path(self, sso: SsoConfiguration) -> str:
        return f"/sso/{sso.tenant.slug}/ended/"


class LimitOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.IntegerField()
    unit = serializers.CharField()
    description = serializers.CharField()
