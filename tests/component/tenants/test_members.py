"""Members and invitations: the roles that each role may give, and the last owner, who cannot be removed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from tenants import access, services
from tenants.actors import member_actor, user_actor
from tenants.choices import Role, Scope
from tenants.errors import Conflict, DomainError, NotFound, PermissionDenied, QuotaExceeded
from tenants.limits import INVITATION_DAYS, INVITATIONS_PENDING_MAX
from tenants.models import ApiToken, AuditEntry, Invitation, Member
from tests.testkit.api_cases import Api, assert_problem, make_member, make_tenant, make_user, owner_of

pytestmark = pytest.mark.django_db


def invite(owner: Member, email: str, role: str = "developer") -> tuple[Invitation, str]:
    return services.invite_member(acting=member_actor(owner), email=email, role=role)


def test_an_invited_person_joins_with_the_invited_role() -> None:
    owner = make_member()
    guest = make_user("guest@example.com")
    made = Api.of(owner).post("/members", {"email": "Guest@Example.com", "role": "developer"}).json()
    secret = made["accept_url"].rstrip("/").rsplit("/", 1)[1]
    joined = Api(user=guest).post("/invitations:accept", {"secret": secret})
    assert joined.status_code == 201, joined.content
    assert joined.json()["role"] == "developer"
    assert joined["Location"] == f"/api/v1/members/{joined.json()['id']}"
    assert Invitation.objects.get().accepted_at is not None
    assert_problem(Api(user=guest).post("/invitations:accept", {"secret": secret}), 404)


def test_only_the_invited_address_may_use_the_link() -> None:
    _, secret = invite(make_member(), "guest@example.com")
    stranger = make_user("stranger@example.com")
    with pytest.raises(NotFound):
        services.accept_invitation(acting=user_actor(stranger), user=stranger, secret=secret)


def test_an_expired_or_revoked_invitation_is_no_invitation() -> None:
    owner = make_member()
    guest = make_user("guest@example.com")
    invitation, secret = invite(owner, guest.email)
    with (
        time_machine.travel(timezone.now() + timedelta(days=INVITATION_DAYS, seconds=1), tick=False),
        pytest.raises(NotFound),
    ):
        services.accept_invitation(acting=user_actor(guest), user=guest, secret=secret)
    services.revoke_invitation(acting=member_actor(owner), invitation=invitation)
    with pytest.raises(NotFound):
        services.accept_invitation(acting=user_actor(guest), user=guest, secret=secret)


def test_a_person_is_invited_once_and_a_member_not_at_all() -> None:
    owner = make_member()
    invite(owner, "guest@example.com")
    with pytest.raises(Conflict) as twice:
        invite(owner, "guest@example.com")
    with pytest.raises(Conflict) as member:
        invite(owner, owner.user.email)
    assert (twice.value.code, member.value.code) == ("already_invited", "already_member")


def test_an_expired_invitation_makes_room_for_another() -> None:
    owner = make_member()
    first, _ = invite(owner, "guest@example.com")
    Invitation.objects.filter(pk=first.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    second, _ = invite(owner, "guest@example.com")
    assert second.pk != first.pk


def test_open_invitations_are_bounded() -> None:
    owner = make_member()
    for number in range(INVITATIONS_PENDING_MAX):
        invite(owner, f"guest-{number}@example.com")
    with pytest.raises(QuotaExceeded):
        invite(owner, "one-more@example.com")


@pytest.mark.parametrize("role", list(Role))
def test_the_table_of_roles_decides_who_manages_whom(role: Role) -> None:
    tenant = make_tenant()
    manager = make_member(role, tenant)
    for wanted in Role:
        subject = make_member(Role.VIEWER, tenant)
        answer = Api(user=manager.user).patch(f"/members/{subject.pk}", {"role": wanted.value})
        may = role is Role.OWNER or (role is Role.ADMIN and wanted is not Role.OWNER)
        assert answer.status_code == (200 if may else 403), (role, wanted, answer.content)
        subject.refresh_from_db()
        assert subject.role == (wanted if may else Role.VIEWER)


def test_an_admin_cannot_touch_an_owner() -> None:
    tenant = make_tenant()
    admin = Api.of(make_member(Role.ADMIN, tenant))
    second_owner = make_member(Role.OWNER, tenant)
    assert_problem(admin.patch(f"/members/{second_owner.pk}", {"role": "viewer"}), 403)
    assert_problem(admin.delete(f"/members/{second_owner.pk}"), 403)


def test_the_last_owner_can_neither_step_down_nor_leave() -> None:
    owner = make_member()
    api = Api.of(owner)
    assert_problem(api.patch(f"/members/{owner.pk}", {"role": "viewer"}), 409, "last_owner")
    assert_problem(api.delete(f"/members/{owner.pk}"), 409, "last_owner")
    make_member(Role.OWNER, owner.tenant)
    assert api.patch(f"/members/{owner.pk}", {"role": "viewer"}).status_code == 200


def test_removing_a_member_ends_its_tokens_and_keeps_its_traces() -> None:
    owner = make_member()
    leaver = make_member(Role.DEVELOPER, owner.tenant)
    theirs = Api.of(leaver)
    assert theirs.get("/members").status_code == 200
    assert Api.of(owner).delete(f"/members/{leaver.pk}").status_code == 204
    assert_problem(theirs.get("/members"), 401)
    assert ApiToken.objects.filter(member=leaver, revoked_at=None).count() == 0
    assert Member.objects.filter(pk=leaver.pk).exists()
    assert AuditEntry.objects.filter(action="member.removed", target_id=leaver.pk).exists()
    assert Api.of(owner).post("/members", {"email": leaver.user.email, "role": "viewer"}).status_code == 201


@pytest.mark.parametrize("ends", ["removed", "demoted"])
def test_an_invitation_ends_with_the_role_that_allowed_its_sender_to_send_it(ends: str) -> None:
    owner = make_member()
    sender = make_member(Role.ADMIN, owner.tenant)
    other_self = make_user("another-address@example.com")
    _, secret = invite(sender, other_self.email, "admin")
    if ends == "removed":
        services.remove_member(acting=member_actor(owner), member=sender)
    else:
        services.change_role(acting=member_actor(owner), member=sender, role="viewer")
    with pytest.raises(NotFound):
        services.accept_invitation(acting=user_actor(other_self), user=other_self, secret=secret)
    entry = AuditEntry.objects.get(action__in=("member.removed", "member.role_changed"))
    assert entry.after is not None
    assert entry.after["revoked_invitations"] == 1


def test_an_invitation_that_its_sender_could_still_send_stays_open() -> None:
    owner = make_member()
    sender = make_member(Role.OWNER, owner.tenant)
    guest, heir = make_user("guest@example.com"), make_user("heir@example.com")
    (_, for_guest), (_, for_heir) = invite(sender, guest.email), invite(sender, heir.email, "owner")
    services.change_role(acting=member_actor(owner), member=sender, role="admin")
    assert services.accept_invitation(acting=user_actor(guest), user=guest, secret=for_guest).role == "developer"
    with pytest.raises(NotFound):
        services.accept_invitation(acting=user_actor(heir), user=heir, secret=for_heir)


def test_lowering_a_role_lowers_the_tokens_made_under_it() -> None:
    owner = make_member()
    demoted = make_member(Role.ADMIN, owner.tenant)
    theirs = Api.of(demoted, ["members:read", "members:write"])
    Api.of(owner).patch(f"/members/{demoted.pk}", {"role": "viewer"})
    assert theirs.get("/members").status_code == 200
    assert_problem(theirs.post("/members", {"email": "x@example.com", "role": "viewer"}), 403)


def test_if_match_lets_only_one_of_two_editors_win() -> None:
    owner = make_member()
    subject = make_member(Role.VIEWER, owner.tenant)
    api = Api.of(owner)
    etag = api.get(f"/members/{subject.pk}")["ETag"]
    changed = api.patch(f"/members/{subject.pk}", {"role": "developer"}, If_Match=etag)
    assert changed.status_code == 200
    assert changed["ETag"] != etag
    assert_problem(api.patch(f"/members/{subject.pk}", {"role": "admin"}, If_Match=etag), 412, "precondition_failed")
    assert_problem(api.delete(f"/members/{subject.pk}", If_Match=f'"other", {etag}'), 412)
    subject.refresh_from_db()
    assert subject.role == "developer"
    assert api.delete(f"/members/{subject.pk}", If_Match="*").status_code == 204


@pytest.mark.django_db(transaction=True)
def test_two_owners_leaving_at_once_leave_one_behind() -> None:
    tenant = make_tenant()
    owners = [owner_of(tenant), make_member(Role.OWNER, tenant)]
    start = threading.Barrier(2)
    refused: list[str] = []

    def leave(member: Member) -> None:
        try:
            start.wait(10)
            services.remove_member(acting=member_actor(member), member=member)
        except DomainError as refusal:
            refused.append(refusal.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=(member,)) for member in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert refused == ["last_owner"]
    assert Member.objects.filter(tenant=tenant, removed_at=None, role=Role.OWNER).count() == 1


def test_every_role_has_scopes_and_only_the_system_has_all() -> None:
    assert set(access.ROLE_SCOPES) == set(Role)
    for scopes in access.ROLE_SCOPES.values():
        assert scopes <= set(Scope.values)
        assert Scope.OPERATOR not in scopes
    assert not any(scope.endswith(":write") for scope in access.ROLE_SCOPES[Role.VIEWER])


def test_an_operator_scope_needs_a_person_who_is_an_operator() -> None:
    owner = make_member()
    with pytest.raises(PermissionDenied):
        services.create_token(acting=member_actor(owner), name="ops", scopes=["operator"])
    owner.user.is_staff = True
    owner.user.save()
    token, _ = services.create_token(acting=member_actor(owner), name="ops", scopes=["operator"])
    assert token.scopes == ["operator"]
