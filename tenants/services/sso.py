"""Single sign-on of a tenant: its configuration, and the members as which identities of its provider sign in.

An identity provider belongs to one tenant and proves nothing outside it: its sessions are confined to that tenant
(`tenants.sessions.sso_tenant_of`), and neither owners nor operators sign in through it. Only addresses of proved
domains may sign in (`tenants.services.sso_domains`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Role
from tenants.errors import Invalid, Message, NotFound
from tenants.limits import (
    MEMBERS_PER_TENANT_MAX,
    NAME_CHARS_MAX,
    SSO_CLAIM_CHARS_MAX,
    SSO_DOMAINS_MAX,
    SSO_JOINS_PER_TENANT_AND_DAY_MAX,
    SSO_ROLE_VALUES_MAX,
    SSO_TEXT_CHARS_MAX,
    TENANTS_PER_USER_MAX,
)
from tenants.models import Invitation, Member, SsoConfiguration, SsoIdentity, Tenant, User
from tenants.second_factor.adapter import cipher
from tenants.services.mailboxes import may_enter
from tenants.services.members import change_role
from tenants.services.sso_domains import has_proved_domain, is_proved, sync_proofs
from tenants.sso import provider
from tenants.sso.protocol import RANKED_ROLES, Claims, SsoFailed, claimed_role, domain_of

DOMAIN = re.compile(r"(?=.{4,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}")


def configuration(acting: Actor) -> SsoConfiguration:
    """Returns the tenant's single sign-on. Raises `NotFound` without one."""
    return access.fetch(SsoConfiguration.objects.select_related("tenant"), tenant=access.tenant_of(acting))


@transaction.atomic
def set_sso(
    *,
    acting: Actor,
    issuer: str,
    client_id: str,
    client_secret: str | None = None,
    domains: Sequence[str],
    role_claim: str = "",
    roles: Sequence[Mapping[str, str]] = (),
    required: bool = False,
    assume_email_verified: bool = False,
) -> SsoConfiguration:
    """Sets the whole configuration after asking the provider for its own. Without `client_secret` the stored one stays.

    Domains that are new are unproved: their addresses sign in after `prove_domain`.

    Raises `Invalid`, `PermissionDenied` and `ConfirmationNeeded`.
    """
    access.require_may_set_sso(acting)
    values = {
        "issuer": _text(issuer, "/issuer"), "client_id": _text(client_id, "/client_id"),
        "domains": _domains(domains), "role_claim": _claim(role_claim), "roles": _roles(roles, role_claim),
        "assume_email_verified": assume_email_verified,
    }  # fmt: skip
    try:
        provider.configuration_of(access.tenant_of(acting).pk, issuer, is_cached=False)  # before anything is locked
    except SsoFailed as error:
        raise Invalid.at("/issuer", error.detail) from None
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    sso = SsoConfiguration.objects.filter(tenant=tenant).first()
    secret = (
        _text(client_secret, "/client_secret") if client_secret is not None else _stored_secret(sso, issuer, client_id)
    )
    before = {} if sso is None else _audit_values(sso, tenant)
    is_new_secret = sso is None or (client_secret is not None and secret != provider.secret_of(sso))
    sso = sso or SsoConfiguration(tenant=tenant)
    changed_names = [name for name, value in values.items() if getattr(sso, name) != value]
    for name in changed_names:
        setattr(sso, name, values[name])
    if is_new_secret:
        sso.client_secret_sealed = cipher().encrypt(secret.encode()).decode()
        changed_names.append("client_secret_sealed")
    if sso._state.adding:
        sso.save()
    elif changed_names:
        sso.save_changes(changed_names)
    sync_proofs(tenant, sso.domains)
    if required and not has_proved_domain(tenant):
        raise Invalid.at("/required", "Prove an e-mail domain first: until then no member could sign in.")
    _set_required(tenant, required)
    changed_from, changed_to = audit.difference(before, _audit_values(sso, tenant))
    if changed_from or changed_to or is_new_secret:
        changed_to |= {"client_secret_is_new": True} if is_new_secret else {}
        audit.record(acting, "sso.set", sso, changed_from or None, changed_to, tenant=tenant)
    sso.tenant = tenant
    return sso


def _stored_secret(sso: SsoConfiguration | None, issuer: str, client_id: str) -> str:
    """Returns the stored secret. Raises `Invalid` without one, and for another provider, which must not receive it."""
    if sso is None or not provider.secret_of(sso):
        raise Invalid.at("/client_secret", "Enter the client secret that the provider gave you.")
    if sso.issuer != issuer or sso.client_id != client_id:
        raise Invalid.at("/client_secret", "Enter the client secret again: issuer or client id have changed.")
    return provider.secret_of(sso)


@transaction.atomic
def remove_sso(*, acting: Actor) -> None:
    """Ends single sign-on. Members it created sign in again after choosing a password by mail."""
    access.require_may_set_sso(acting)
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)
    sso = SsoConfiguration.objects.filter(tenant=tenant).first()
    if sso is None:
        raise NotFound
    before = _audit_values(sso, tenant)
    audit.record(acting, "sso.removed", sso, before, None, tenant=tenant)
    sso.delete()
    sync_proofs(tenant, ())
    _set_required(tenant, False)


def sso_of_slug(slug: str) -> SsoConfiguration | None:
    """Returns the single sign-on of the tenant with a short name, for visitors; None without one."""
    if "\x00" in slug:
        return None
    return SsoConfiguration.objects.filter(tenant__slug=slug).select_related("tenant").first()


def sso_of(tenant_id: str) -> SsoConfiguration | None:
    """Returns the single sign-on of a tenant, to which a session is confined; None without one."""
    return SsoConfiguration.objects.filter(tenant=tenant_id).select_related("tenant").first()


@transaction.atomic
def member_for_identity(*, sso: SsoConfiguration, claims: Claims) -> Member:
    """Returns the member as which an identity signs in, with the role that its claims give it.

    The member is that of the known identity, that with the identity's verified e-mail address, or a new one. Raises
    `SsoFailed`; nothing is changed then.
    """
    tenant = Tenant.objects.select_for_update(no_key=True).get(pk=sso.tenant_id)
    current = SsoConfiguration.objects.filter(tenant=tenant).first()
    if current is None or (current.pk, current.version) != (sso.pk, sso.version):
        raise SsoFailed("changed", Message(gettext_noop("Single sign-on was changed meanwhile. Begin again.")))
    if not claims.email:
        detail = Message(gettext_noop("The provider does not say that your e-mail address is verified."))
        raise SsoFailed("email_unverified", detail)
    if domain_of(claims.email) not in sso.domains:
        raise SsoFailed("foreign_domain", Message(gettext_noop("Your e-mail domain may not sign in to this tenant.")))
    if not is_proved(tenant, domain_of(claims.email)):
        detail = Message(
            gettext_noop("The tenant has not proved yet that it controls your e-mail domain. Ask one of its admins.")
        )
        raise SsoFailed("unproved_domain", detail)
    role = _role(sso, claims)
    identity = SsoIdentity.objects.filter(tenant=tenant, issuer=sso.issuer, subject=claims.subject).first()
    user = identity.user if identity is not None else User.objects.filter(email=claims.email).first()
    if user is not None:
        _require_signs_in_here(user)
    if identity is None and user is not None:
        _require_unlinked(sso, user)
    member = None if user is None else Member.objects.filter(tenant=tenant, user=user, removed_at=None).first()
    if member is None:
        member = _join(sso, claims, user, role)
    if member.role == Role.OWNER:
        detail = Message(
            gettext_noop("Owners sign in with their password or passkey, so that the way in stays theirs.")
        )
        raise SsoFailed("owner", detail)
    if role is not None and member.role != role:
        member = change_role(acting=system_actor("sso", tenant), member=member, role=role)
    if identity is None:
        identity = SsoIdentity(tenant=tenant, user=member.user, issuer=sso.issuer, subject=claims.subject)
        audit.record(system_actor("sso", tenant), "sso.linked", member, None, _identity_values(claims))
    identity.last_used_at = timezone.now()
    identity.save()
    return Member.objects.select_related("tenant", "user").get(pk=member.pk)


def record_refusal(*, sso: SsoConfiguration, claims: Claims, reason: str, acting: Actor) -> None:
    """Records that an identity of the tenant's provider was refused."""
    audit.record(acting, "sso.refused", sso, None, _identity_values(claims) | {"reason": reason}, tenant=sso.tenant)


def _role(sso: SsoConfiguration, claims: Claims) -> Role | None:
    """Returns the claimed role; None if the tenant maps none, so that members keep theirs."""
    if not sso.role_claim:
        return None
    role = claimed_role(claims.raw, sso.role_claim, sso.roles)
    if role is None:
        detail = Message(gettext_noop("The provider gives you no role here. Ask an admin of the tenant for one."))
        raise SsoFailed("no_role", detail)
    return role


def _require_signs_in_here(user: User) -> None:
    if user.is_staff or user.is_superuser:
        detail = Message(gettext_noop("Operators do not sign in through the provider of a tenant."))
        raise SsoFailed("operator", detail)
    if not user.is_active:
        raise SsoFailed("inactive", Message(gettext_noop("Your account is disabled.")))


def _require_unlinked(sso: SsoConfiguration, user: User) -> None:
    """Raises `SsoFailed` for another identity of a linked address, which may have been reassigned to another person."""
    if SsoIdentity.objects.filter(tenant=sso.tenant_id, issuer=sso.issuer, user=user).exists():
        detail = Message(
            gettext_noop(
                "Another identity of the provider has this address. An admin removes the member and invites again."
            )
        )
        raise SsoFailed("linked_to_another", detail)


def _join(sso: SsoConfiguration, claims: Claims, user: User | None, role: Role | None) -> Member:
    """Creates a member by an open invitation, or with a new account if claims give it a role. Raises `SsoFailed`."""
    now = timezone.now()
    invitation = (
        Invitation.objects.select_for_update()
        .filter(tenant=sso.tenant_id, email=claims.email, accepted_at=None, revoked_at=None, expires_at__gt=now)
        .first()
    )
    if invitation is None and (user is not None or role is None):
        detail = Message(gettext_noop("You are no member of this tenant. Ask an admin for an invitation."))
        raise SsoFailed("no_member", detail)
    if user is not None and (user.email_verified_at is None or user.email != claims.email or not may_enter(user)):
        # Another person may have created the account with this address, and would become a member.
        detail = Message(
            gettext_noop("There is an account with your address already. Accept the invitation by its link first.")
        )
        raise SsoFailed("unverified_account", detail)
    assigned_role = role or Role(invitation.role if invitation is not None else Role.VIEWER)
    if assigned_role is Role.OWNER:
        detail = Message(gettext_noop("You are invited as an owner. Accept the invitation by its link."))
        raise SsoFailed("owner", detail)
    _require_within_limits(sso.tenant_id, user)
    if user is None:
        name = claims.name[:NAME_CHARS_MAX]
        fields = {"name": name if name.isprintable() else "", "enters_verified_only": settings.MAIL_IS_CONFIGURED}
        try:
            with transaction.atomic():
                user = User.objects.create_user(claims.email, None, **fields)
        except IntegrityError:  # the address signed up elsewhere at the same moment
            detail = Message(gettext_noop("Many people sign in at this moment. Try again in a few seconds."))
            raise SsoFailed("busy", detail) from None
    member = Member.objects.create(tenant=sso.tenant, user=user, role=assigned_role)
    after = {"email": user.email, "role": member.role}
    if invitation is not None:
        invitation.accepted_at = now
        invitation.save_changes(["accepted_at"])
        after |= {"invitation": invitation.pk}
    audit.record(system_actor("sso", sso.tenant), "member.joined", member, None, after)
    return member


def _require_within_limits(tenant_id: str, user: User | None) -> None:
    member_count = Member.objects.filter(tenant=tenant_id, removed_at=None).count()
    if member_count >= MEMBERS_PER_TENANT_MAX:
        detail = Message(gettext_noop("A tenant may have %(n)s members."), n=MEMBERS_PER_TENANT_MAX)
        raise SsoFailed("too_many_members", detail)
    day_ago = timezone.now() - timedelta(days=1)
    if Member.objects.filter(tenant=tenant_id, created_at__gt=day_ago).count() >= SSO_JOINS_PER_TENANT_AND_DAY_MAX:
        detail = Message(
            gettext_noop("At most %(n)s people join a tenant in a day. Try again tomorrow."),
            n=SSO_JOINS_PER_TENANT_AND_DAY_MAX,
        )
        raise SsoFailed("too_many_joins", detail)
    if user is not None:
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        if Member.objects.filter(user=user, removed_at=None).count() >= TENANTS_PER_USER_MAX:
            detail = Message(gettext_noop("A person may belong to %(n)s tenants."), n=TENANTS_PER_USER_MAX)
            raise SsoFailed("too_many_tenants", detail)


def _set_required(tenant: Tenant, required: bool) -> None:
    if tenant.requires_sso != required:
        tenant.requires_sso = required
        tenant.save_changes(["requires_sso"])


def _text(value: str, pointer: str) -> str:
    if not 0 < len(value) <= SSO_TEXT_CHARS_MAX or not value.isprintable() or value != value.strip():
        detail = Message(
            gettext_noop("Enter 1 to %(n)s printable characters without spaces around them."), n=SSO_TEXT_CHARS_MAX
        )
        raise Invalid.at(pointer, detail)
    return value


def _domains(domains: Sequence[str]) -> list[str]:
    normalized = sorted({domain.strip().lower() for domain in domains})
    if not 1 <= len(normalized) <= SSO_DOMAINS_MAX:
        raise Invalid.at("/domains", Message(gettext_noop("Name 1 to %(n)s e-mail domains."), n=SSO_DOMAINS_MAX))
    for domain in normalized:
        if not DOMAIN.fullmatch(domain):
            detail = Message(gettext_noop("%(domain)s is no domain such as example.com."), domain=ascii(domain)[1:65])
            raise Invalid.at("/domains", detail)
    return normalized


def _claim(claim: str) -> str:
    if len(claim) > SSO_CLAIM_CHARS_MAX or not claim.isprintable():
        detail = Message(
            gettext_noop("A claim or its value has at most %(n)s printable characters."), n=SSO_CLAIM_CHARS_MAX
        )
        raise Invalid.at("/role_claim", detail)
    return claim.strip()


def _roles(roles: Sequence[Mapping[str, str]], claim: str) -> dict[str, str]:
    """Returns the roles by value of the claim. Raises `Invalid`."""
    roles_by_value: dict[str, str] = {}
    for number, entry in enumerate(roles):
        value, role = entry["value"], entry["role"]
        if not 0 < len(value) <= SSO_CLAIM_CHARS_MAX or not value.isprintable():
            detail = Message(
                gettext_noop("A claim or its value has at most %(n)s printable characters."), n=SSO_CLAIM_CHARS_MAX
            )
            raise Invalid.at(f"/roles/{number}/value", detail)
        if role not in RANKED_ROLES:
            raise Invalid.at(f"/roles/{number}/role", "No provider makes owners. Choose another role.")
        if roles_by_value.setdefault(value, role) != role:
            raise Invalid.at(f"/roles/{number}/value", "This value has another role already.")
    if len(roles_by_value) > SSO_ROLE_VALUES_MAX:
        raise Invalid.at("/roles", Message(gettext_noop("Map at most %(n)s values."), n=SSO_ROLE_VALUES_MAX))
    if bool(claim.strip()) != bool(roles_by_value):
        raise Invalid.at("/roles", "Name a claim and at least one value with its role, or neither.")
    return roles_by_value


def _audit_values(sso: SsoConfiguration, tenant: Tenant) -> dict[str, Any]:
    return {
        "issuer": sso.issuer, "client_id": sso.client_id, "domains": sso.domains, "role_claim": sso.role_claim,
        "roles": sso.roles, "required": tenant.requires_sso, "assume_email_verified": sso.assume_email_verified,
    }  # fmt: skip


def _identity_values(claims: Claims) -> dict[str, str]:
    return {"email": claims.email, "subject": claims.subject}
