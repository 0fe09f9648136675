"""Limits of a token on its own creations: scopes, lifetime, and the roles of invited members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tenants import access, limits, services
from tenants.actors import member_actor, operator_actor, token_actor
from tenants.choices import Role
from tenants.errors import Unauthenticated
from tenants.models import ApiToken, AuditEntry, Invitation, Member
from tenants.services import members
from tests.testkit.api_cases import Api, assert_problem, make_member, make_user
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db
SCOPES = ["members:read", "tokens:write"]
BODY = {"name": "child", "scopes": SCOPES}


@pytest.fixture()
def owner() -> Member:
    return make_member()


def made(api: Api, **fields: Any) -> dict[str, Any]:
    answer = api.post("/tokens", BODY | fields)
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def works(secret: str) -> bool:
    return bool(Api(secret).get("/members").status_code == 200)


def test_a_child_expires_with_its_parent_and_not_later(owner: Member) -> None:
    until = timezone.now() + timedelta(hours=2)
    parent = Api(made(Api.of(owner), expires_at=until.isoformat())["secret"])
    child = made(parent)
    assert ApiToken.objects.get(pk=child["id"]).expires_at == until
    earlier = made(parent, expires_at=(until - timedelta(hours=1)).isoformat())
    assert ApiToken.objects.get(pk=earlier["id"]).expires_at == until - timedelta(hours=1)
    later = parent.post("/tokens", BODY | {"expires_at": (until + timedelta(seconds=1)).isoformat()})
    problem = assert_problem(later, 400, "invalid_request")
    assert (problem["errors"][0]["pointer"], problem["errors"][0]["code"]) == ("/expires_at", "after_parent")
    assert ApiToken.objects.filter(name="child").count() == 3


def test_a_token_without_end_makes_tokens_without_end(owner: Member) -> None:
    assert made(Api(made(Api.of(owner))["secret"]))["expires_at"] is None


def test_tokens_die_with_the_token_that_made_them_over_generations(owner: Member) -> None:
    parent = made(Api.of(owner))
    child = made(Api(parent["secret"]))
    grandchild, other = made(Api(child["secret"])), made(Api.of(owner))
    tokens = [parent, child, grandchild, other]
    assert [works(token["secret"]) for token in tokens] == [True] * 4
    services.revoke_token(acting=member_actor(owner), token=ApiToken.objects.get(pk=child["id"]))
    assert [works(token["secret"]) for token in tokens] == [True, False, False, True]
    revoked = AuditEntry.objects.filter(action="token.revoked").values_list("target_id", flat=True)
    assert set(revoked) == {child["id"], grandchild["id"]}


@pytest.mark.parametrize("ends", ["by its member's leaving", "by an operator"])
def test_however_a_token_ends_those_it_made_end(owner: Member, ends: str) -> None:
    member = make_member(Role.ADMIN, owner.tenant)
    parent = made(Api.of(member))
    child = made(Api(parent["secret"]))
    if ends == "by an operator":
        operator = operator_actor(make_user(is_staff=True)).within(owner.tenant)
        services.revoke_token(acting=operator, token=ApiToken.objects.get(pk=parent["id"]))
    else:
        services.remove_member(acting=member_actor(owner), member=member)
    assert not works(child["secret"])


@pytest.mark.parametrize(
    ("scopes", "may"),
    [
        (["members:write", "members:read"], set()),
        ([*sorted(access.ROLE_SCOPES[Role.VIEWER] & access.TOKEN_SCOPES), "members:write"], {Role.VIEWER}),
        (sorted(access.TOKEN_SCOPES - {"operator", "billing:read", "billing:write"}), {Role.VIEWER, Role.DEVELOPER}),
        (sorted(access.TOKEN_SCOPES - {"operator", "billing:write"}), {Role.VIEWER, Role.DEVELOPER, Role.ADMIN}),
        (sorted(access.TOKEN_SCOPES - {"operator"}), set(Role)),
    ],
)
def test_a_token_invites_nobody_who_may_do_more_than_it_may(owner: Member, scopes: list[str], may: set[Role]) -> None:
    api = Api.of(owner, scopes)
    guest = make_member(Role.VIEWER, owner.tenant) if may else make_member(Role.FINANCE, owner.tenant)
    for role in Role:
        answer = api.post("/members", {"email": f"{role}@example.com", "role": role})
        changed = api.patch(f"/members/{guest.pk}", {"role": role})
        if role in may:
            assert (answer.status_code, changed.status_code) == (201, 200), answer.content
        else:
            assert_problem(answer, 403, "scope_too_wide")
            assert_problem(changed, 403, "scope_too_wide")
    assert set(Invitation.objects.values_list("role", flat=True)) == {role.value for role in may}


def test_a_person_still_invites_whom_the_role_allows(owner: Member) -> None:
    for role in Role:
        services.invite_member(acting=member_actor(owner), email=f"{role}@example.com", role=role)
    assert Invitation.objects.count() == len(Role)


def test_an_open_invitation_dies_with_the_token_it_was_made_with(owner: Member) -> None:
    token = ApiToken.objects.get(pk=made(Api.of(owner))["id"])
    token.scopes = sorted(access.TOKEN_SCOPES - {"operator"})
    token.save()
    _invitation, secret = services.invite_member(
        acting=token_actor(token), email="guest@example.com", role=Role.DEVELOPER
    )
    services.revoke_token(acting=member_actor(owner), token=token)
    guest = make_user("guest@example.com")
    assert_problem(Api(user=guest).post("/invitations:accept", {"secret": secret}), 404)
    assert AuditEntry.objects.filter(action="token.revoked", after={"revoked_invitations": 1}).count() == 1


def test_invitations_of_a_tenant_are_limited_per_day(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.INVITATIONS_PER_TENANT_AND_DAY_MAX > limits.INVITATIONS_PENDING_MAX
    monkeypatch.setattr(members, "INVITATIONS_PER_TENANT_AND_DAY_MAX", 2)
    api = Api.of(owner)
    for number in range(2):
        body = {"email": f"guest-{number}@example.com", "role": "viewer"}
        invitation = api.post("/members", body).json()["id"]
        assert api.delete(f"/invitations/{invitation}").status_code == 204
    assert_problem(api.post("/members", {"email": "x@example.com", "role": "viewer"}), 403, "quota_exceeded")


@pytest.mark.django_db(transaction=True)
def test_a_token_that_is_revoked_while_it_makes_another_makes_none(owner: Member) -> None:
    token = ApiToken.objects.get(pk=made(Api.of(owner))["id"])
    acting = token_actor(token)
    with transaction.atomic():
        services.revoke_token(acting=member_actor(owner), token=token)
        thread, failed = start_beside(lambda: services.create_token(acting=acting, name="late", scopes=SCOPES))
        eventually(lambda: is_any_session_waiting() or not thread.is_alive(), what="the second to wait for the first")
    thread.join(20)
    assert [type(failure) for failure in failed] == [Unauthenticated]
    assert not ApiToken.objects.filter(name="late").exists()
