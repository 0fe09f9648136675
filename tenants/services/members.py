"""Members: invitation, joining, change of role, removal. A tenant always keeps an owner."""

from __future__ import annotations

from collections.abc import Set
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext_noop

from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import ActorKind, Role, Scope
from tenants.errors import Conflict, Message, NotFound, PermissionDenied, QuotaExceeded
from tenants.limits import (
    INVITATION_DAYS,
    INVITATIONS_PENDING_MAX,
    INVITATIONS_PER_TENANT_AND_DAY_MAX,
    MEMBERS_PER_TENANT_MAX,
    TENANTS_PER_USER_MAX,
)
from tenants.models import ApiToken, Invitation, Member, SsoIdentity, Tenant, User, UserManager
from tenants.secrets import INVITATION_START, hash_secret, new_secret
from tenants.services import mailboxes


@transaction.atomic
def invite_member(*, acting: Actor, email: str, role: str) -> tuple[Invitation, str]:
    """Returns a new invitation and the secret of its link, which is not stored, and mails it if mail is configured.

    An expired invitation of the same address is replaced.
    """
    tenant = _lock_tenant(acting)
    invited_role = Role(role)
    _require_may_assign(acting, invited_role)
    _require_confirmed_for_owners(acting, invited_role)
    email = UserManager.normalize_email(email)
    now = timezone.now()
    if Member.objects.filter(tenant=tenant, user__email=email, removed_at=None).exists():
        raise Conflict("This person is a member already.", code="already_member")
    open_invitations = Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)
    open_invitations.filter(expires_at__lte=now).update(revoked_at=now)
    if open_invitations.filter(email=email).exists():
        raise Conflict("This person has an open invitation. Revoke it first.", code="already_invited")
    if open_invitations.count() >= INVITATIONS_PENDING_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant may have %(n)s open invitations."), n=INVITATIONS_PENDING_MAX)
        )
    day_ago = now - timedelta(days=1)
    if Invitation.objects.filter(tenant=tenant, created_at__gt=day_ago).count() >= INVITATIONS_PER_TENANT_AND_DAY_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant may invite %(n)s people a day."), n=INVITATIONS_PER_TENANT_AND_DAY_MAX)
        )
    secret = new_secret(INVITATION_START)
    assert acting.member is not None, "only members invite"
    invitation = Invitation.objects.create(
        tenant=tenant,
        email=email,
        role=invited_role,
        secret_hash=hash_secret(secret),
        invited_by=acting.member,
        token=access.acting_token(acting),
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    audit.record(acting, "member.invited", invitation, None, {"email": email, "role": invited_role})
    transaction.on_commit(lambda: mailboxes.send_invitation_mail(invitation, secret))
    return invitation, secret


@transaction.atomic
def revoke_invitation(*, acting: Actor, invitation: Invitation) -> None:
    """Revokes an invitation, so that its link stops working."""
    _require_may_manage(acting, Role(invitation.role))
    invitation.revoked_at = timezone.now()
    invitation.save_changes(["revoked_at"])
    before = {"email": invitation.email, "role": invitation.role}
    audit.record(acting, "invitation.revoked", invitation, before, None)


@transaction.atomic
def accept_invitation(*, acting: Actor, user: User, secret: str) -> Member:
    """Joins the inviting tenant. The secret and the e-mail address must both be those of the invitation.

    Raises `NotFound` for anything that is not an open invitation of this person, without distinction.
    """
    access.require_whole_account(acting)
    now = timezone.now()
    rows = Invitation.objects.filter(
        secret_hash=hash_secret(secret), email=user.email, accepted_at=None, revoked_at=None, expires_at__gt=now
    )
    # The tenant is locked before the invitation, as everywhere.
    tenant = Tenant.objects.select_for_update(no_key=True).filter(pk__in=rows.values("tenant_id")).first()
    invitation = rows.select_for_update().first() if tenant else None
    if tenant is None or invitation is None:
        raise NotFound("There is no open invitation for you under this link.")
    current_members = Member.objects.filter(tenant=tenant, removed_at=None)
    if current_members.filter(user=user).exists():
        raise Conflict("You are a member already.", code="already_member")
    if current_members.count() >= MEMBERS_PER_TENANT_MAX:
        raise QuotaExceeded(Message(gettext_noop("A tenant may have %(n)s members."), n=MEMBERS_PER_TENANT_MAX))
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # serialises concurrent joins and foundings of one user
    if Member.objects.filter(user=user, removed_at=None).count() >= TENANTS_PER_USER_MAX:
        raise QuotaExceeded(Message(gettext_noop("A person may belong to %(n)s tenants."), n=TENANTS_PER_USER_MAX))
    member = Member.objects.create(tenant=tenant, user=user, role=invitation.role)
    invitation.accepted_at = now
    invitation.save_changes(["accepted_at"])
    after = {"email": user.email, "role": member.role, "invitation": invitation.pk}
    audit.record(acting, "member.joined", member, None, after, tenant=tenant)
    return member


@transaction.atomic
def change_role(*, acting: Actor, member: Member, role: str) -> Member:
    """Changes the role of a member. Only owners assign or remove owners; the last owner keeps the role."""
    _lock_tenant(acting)
    member = access.member(acting, member.pk, lock=True)
    new_role, current_role = Role(role), Role(member.role)
    _require_may_assign(acting, new_role)
    _require_may_manage(acting, current_role)
    if new_role is current_role:
        return member
    _require_confirmed_for_owners(acting, new_role, current_role)
    _require_another_owner(member)
    member.role = new_role
    member.save_changes(["role"])
    revoked_invitation_count = _revoke_unassignable_invitations(
        member, assignable=access.MANAGED_ROLES.get(new_role, frozenset())
    )
    after = {"role": new_role} | ({"revoked_invitations": revoked_invitation_count} if revoked_invitation_count else {})
    audit.record(acting, "member.role_changed", member, {"role": current_role}, after)
    return member


@transaction.atomic
def remove_member(*, acting: Actor, member: Member) -> None:
    """Ends a membership, and revokes the tokens and open invitations created under it, so that no access remains.

    A person may always leave, regardless of role and suspension. Removing another member is a change of the tenant, as
    is anything done by a token.
    """
    _lock_tenant(acting)
    member = access.member(acting, member.pk, lock=True)
    is_leaving = acting.kind is ActorKind.USER and acting.member is not None and acting.member.pk == member.pk
    if not is_leaving:
        access.require(acting, Scope.MEMBERS_WRITE)
        _require_may_manage(acting, Role(member.role))
        _require_confirmed_for_owners(acting, Role(member.role))
    _require_another_owner(member)
    now = timezone.now()
    member.removed_at = now
    member.save_changes(["removed_at"])
    revoked_token_count = ApiToken.objects.filter(member=member, revoked_at=None).update(revoked_at=now)
    SsoIdentity.objects.filter(tenant=member.tenant_id, user=member.user_id).delete()
    before = {"email": member.user.email, "role": member.role}
    revoked_invitation_count = _revoke_unassignable_invitations(member, assignable=frozenset())
    after = {"revoked_tokens": revoked_token_count, "revoked_invitations": revoked_invitation_count}
    audit.record(acting, "member.removed", member, before, after)


def _revoke_unassignable_invitations(member: Member, *, assignable: Set[Role]) -> int:
    """Revokes invitations that the member sent and could not send with these roles; returns their number."""
    unassignable = Invitation.objects.filter(invited_by=member, accepted_at=None, revoked_at=None).exclude(
        role__in=assignable
    )
    return unassignable.update(revoked_at=timezone.now(), version=F("version") + 1)


def _lock_tenant(acting: Actor) -> Tenant:
    """Locks and returns the actor's tenant, which serialises changes of its members."""
    return Tenant.objects.select_for_update(no_key=True).get(pk=access.tenant_of(acting).pk)


def _require_another_owner(member: Member) -> None:
    others = Member.objects.filter(tenant=member.tenant_id, role=Role.OWNER, removed_at=None).exclude(pk=member.pk)
    if member.role == Role.OWNER and not others.exists():
        raise Conflict("A tenant keeps at least one owner. Make another member owner first.", code="last_owner")


def _require_confirmed_for_owners(acting: Actor, *roles: Role) -> None:
    """Requires a confirmed session for assigning or removing owners."""
    if Role.OWNER in roles:
        access.require_confirmed(acting)


def _require_may_assign(acting: Actor, role: Role) -> None:
    _require_may_manage(acting, role)
    if not access.may_assign_role(acting, role):
        detail = Message(
            gettext_noop("A token cannot make a member with the role %(role)s, who may do more than it may."),
            role=role.value,
        )
        raise PermissionDenied(detail, code="scope_too_wide")


def _require_may_manage(acting: Actor, role: Role) -> None:
    if acting.kind is ActorKind.SYSTEM:
        return
    if acting.role is None or role not in access.MANAGED_ROLES.get(acting.role, frozenset()):
        raise PermissionDenied(
            Message(gettext_noop("Your role may not manage members with the role %(role)s."), role=role.value)
        )
