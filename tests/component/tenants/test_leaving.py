"""Removal of memberships: the permitted cases over REST and in the console, also while the tenant is suspended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from tenants import services
from tenants.actors import system_actor
from tenants.choices import Role, SuspensionReason
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member

pytestmark = pytest.mark.django_db

Remove = Callable[[Member, Member], None]


def by_rest(who: Member, whom: Member) -> None:
    Api(user=who.user).delete(f"/members/{whom.pk}")


def on_the_console(who: Member, whom: Member) -> None:
    client = Client()
    client.force_login(who.user, backend="django.contrib.auth.backends.ModelBackend")
    client.post(reverse("page-member-remove", args=[whom.pk]), {"confirmed": "yes"})


@pytest.fixture(params=[by_rest, on_the_console])
def remove(request: pytest.FixtureRequest) -> Remove:
    result: Remove = request.param
    return result


def is_gone(member: Member) -> bool:
    return Member.objects.get(pk=member.pk).removed_at is not None


def suspend(owner: Member) -> None:
    services.suspend_tenant(acting=system_actor("tests"), tenant=owner.tenant, reason=SuspensionReason.UNPAID)


def test_in_a_suspended_tenant_nobody_is_removed(remove: Remove) -> None:
    owner = make_member()
    other = make_member(Role.DEVELOPER, owner.tenant)
    suspend(owner)
    remove(owner, other)
    assert not is_gone(other)


@pytest.mark.parametrize("role", [Role.ADMIN, Role.VIEWER, Role.FINANCE])
def test_a_person_may_leave_whatever_their_role_and_also_a_suspended_tenant(remove: Remove, role: Role) -> None:
    owner = make_member()
    leaves, stays = make_member(role, owner.tenant), make_member(Role.VIEWER, owner.tenant)
    suspend(owner)
    remove(leaves, leaves)
    assert is_gone(leaves)
    remove(stays, owner)
    assert not is_gone(owner)


def test_the_last_owner_does_not_leave(remove: Remove) -> None:
    owner = make_member()
    remove(owner, owner)
    assert not is_gone(owner)


def test_a_viewer_removes_nobody_else(remove: Remove) -> None:
    owner = make_member()
    viewer, other = make_member(Role.VIEWER, owner.tenant), make_member(Role.VIEWER, owner.tenant)
    remove(viewer, other)
    assert not is_gone(other)


def test_a_token_without_the_scope_does_not_make_its_owner_leave() -> None:
    member = make_member(Role.ADMIN, make_member().tenant)
    answer = Api.of(member, ["members:read"]).delete(f"/members/{member.pk}")
    assert_problem(answer, 403, "permission_denied")
    assert not is_gone(member)
