"""Undo of a user's deletion by REST."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from instances import services
from instances.limits import (
    DELETED_USERS_KEPT_DAYS,
    DELETED_USERS_MAX,
    PURGE_RETRIED_AFTER_S,
    PURGES_PER_ROUND_MAX,
)
from instances.models import DeletedUser, Instance
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule, secret
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

NAME = "etl"


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture
def at(instance: Instance, users: FakeUsers) -> str:
    users.add(instance.pk, NAME, superuser=True)
    return f"/instances/{instance.pk}"


def test_a_deleted_user_may_not_sign_in_is_not_listed_and_comes_back_as_it_was(
    api: Api, at: str, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    acls.create(instance.pk, [rule(f"User:{NAME}")])
    before = users.users_by_key[instance.pk, NAME]
    assert api.delete(f"{at}/users/{NAME}").status_code == 204
    kept = users.users_by_key[instance.pk, NAME]
    assert (kept.disabled, kept.secrets) == (True, before.secrets), "brokers keep its passwords, and let nobody in"
    assert_problem(api.get(f"{at}/users/{NAME}"), 404, "not_found")
    assert api.get(f"{at}/users").json()["items"] == []
    assert_problem(api.patch(f"{at}/users/{NAME}", {"disabled": False}), 404, "not_found")
    assert_problem(api.post(f"{at}/users/{NAME}/secrets"), 404, "not_found")
    assert_problem(api.post(f"{at}/users", {"name": NAME}), 409, "recently_deleted")
    (item,) = api.get(f"{at}/deleted-users").json()["items"]
    row = DeletedUser.objects.get()
    assert item["name"] == NAME
    assert row.expires_at - row.deleted_at == timedelta(days=DELETED_USERS_KEPT_DAYS)

    assert api.post(f"{at}/users/{NAME}/restore").status_code == 204
    assert users.users_by_key[instance.pk, NAME] == before
    assert api.get(f"{at}/users/{NAME}").json()["superuser"] is True
    assert api.get(f"{at}/deleted-users").json()["items"] == []
    assert len(acls.rules_by_instance[instance.pk]) == 1
    actions = AuditEntry.objects.filter(target_id=f"{instance.pk}/users/{NAME}").values_list("action", flat=True)
    assert sorted(actions) == ["user.deleted", "user.restored"]
    assert_problem(api.post(f"{at}/users/{NAME}/restore"), 404, "not_found")


def test_a_disabled_user_stays_disabled(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    api.patch(f"{at}/users/{NAME}", {"disabled": True})
    api.delete(f"{at}/users/{NAME}")
    api.post(f"{at}/users/{NAME}/restore")
    assert api.get(f"{at}/users/{NAME}").json()["disabled"] is True


def test_a_user_deleted_for_good_at_once_or_later_is_gone(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    assert api.delete(f"{at}/users/{NAME}?for_good=true").status_code == 204
    assert not users.users_by_key
    assert not DeletedUser.objects.exists()
    users.add(instance.pk, NAME)
    api.delete(f"{at}/users/{NAME}")
    assert api.delete(f"{at}/deleted-users/{NAME}").status_code == 204
    assert not users.users_by_key
    assert AuditEntry.objects.filter(action="user.deleted_for_good").count() == 1
    assert_problem(api.delete(f"{at}/deleted-users/{NAME}"), 404, "not_found")
    assert api.post(f"{at}/users", {"name": NAME}).status_code == 201


def test_its_time_is_over_after_days_and_the_oldest_goes_beyond_the_limit(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    now = timezone.now()
    for number in range(DELETED_USERS_MAX):
        name, deleted_at = f"u{number:03}", now - timedelta(minutes=DELETED_USERS_MAX - number)
        users.add(instance.pk, name, disabled=True)
        DeletedUser.objects.create(
            instance=instance, name=name, created_at_ms=users.users_by_key[instance.pk, name].created_at_ms,
            secret_ids=[f"sec-of-{name}"], deleted_at=deleted_at, expires_at=deleted_at + services.USER_RESTORE_PERIOD,
        )  # fmt: skip
    api.delete(f"{at}/users/{NAME}")
    assert services.purge_expired_users(timezone.now()) == 1
    assert (instance.pk, "u000") not in users.users_by_key
    assert DeletedUser.objects.count() == DELETED_USERS_MAX
    later = timezone.now() + timedelta(days=DELETED_USERS_KEPT_DAYS, seconds=1)
    assert services.purge_expired_users(later) == DELETED_USERS_MAX
    assert not users.users_by_key


def test_users_that_cannot_be_purged_keep_no_others_from_it(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    now = timezone.now()
    api.delete(f"{at}/users/{NAME}")
    DeletedUser.objects.update(expires_at=now - timedelta(minutes=1))
    silent = make_running(make_member().tenant)
    DeletedUser.objects.bulk_create(
        DeletedUser(
            instance=silent, name=f"u{number}", created_at_ms=0, deleted_at=now, expires_at=now - timedelta(minutes=2)
        )
        for number in range(PURGES_PER_ROUND_MAX)
    )
    users.silent_instances.add(silent.pk)
    assert services.purge_expired_users(now) == 0
    assert services.purge_expired_users(now) == 1
    assert (instance.pk, NAME) not in users.users_by_key
    assert DeletedUser.objects.count() == PURGES_PER_ROUND_MAX
    users.silent_instances.clear()
    assert services.purge_expired_users(now + timedelta(seconds=PURGE_RETRIED_AFTER_S)) == PURGES_PER_ROUND_MAX


def test_a_user_that_a_kafka_client_changed_or_made_again_is_another_one(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    api.delete(f"{at}/users/{NAME}")
    users.add(instance.pk, NAME, secrets=(secret("sec-new"),))
    assert api.get(f"{at}/users/{NAME}").status_code == 200
    assert api.get(f"{at}/deleted-users").json()["items"] == [], "it cannot be restored"
    assert_problem(api.post(f"{at}/users/{NAME}/restore"), 404, "not_found")
    assert api.delete(f"{at}/deleted-users/{NAME}").status_code == 204
    assert (instance.pk, NAME) in users.users_by_key, "only the deleted one goes"
    api.delete(f"{at}/users/{NAME}")
    users.is_down = True
    assert len(api.get(f"{at}/deleted-users").json()["items"]) == 1, "nobody says whether it is still the same"
    users.is_down = False
    del users.users_by_key[instance.pk, NAME]
    assert api.get(f"{at}/deleted-users").json()["items"] == []
    assert api.post(f"{at}/users", {"name": NAME}).status_code == 201, "a client has deleted it: the name is free"
    assert not DeletedUser.objects.exists()


def test_where_nobody_says_whether_it_was_done_it_can_be_asked_for_again(
    api: Api, at: str, instance: Instance, users: FakeUsers
) -> None:
    users.is_lost = True
    assert_problem(api.delete(f"{at}/users/{NAME}"), 503, "outcome_unknown")
    users.is_lost = False
    assert api.delete(f"{at}/users/{NAME}").status_code == 204
    users.is_lost = True
    assert_problem(api.post(f"{at}/users/{NAME}/restore"), 503, "outcome_unknown")
    assert DeletedUser.objects.count() == 1
    users.is_lost = False
    assert api.post(f"{at}/users/{NAME}/restore").status_code == 204


def test_a_dry_run_changes_nothing(api: Api, at: str, instance: Instance, users: FakeUsers) -> None:
    assert api.delete(f"{at}/users/{NAME}?dry_run=true").status_code == 204
    assert not DeletedUser.objects.exists()
    assert not users.users_by_key[instance.pk, NAME].disabled
    api.delete(f"{at}/users/{NAME}")
    assert api.post(f"{at}/users/{NAME}/restore?dry_run=true").status_code == 204
    assert api.delete(f"{at}/deleted-users/{NAME}?dry_run=true").status_code == 204
    assert users.users_by_key[instance.pk, NAME].disabled
    assert DeletedUser.objects.count() == 1


def test_roles_without_the_permission_and_other_tenants_are_refused(
    api: Api, at: str, owner: Member, users: FakeUsers
) -> None:
    api.delete(f"{at}/users/{NAME}")
    viewer, stranger = Api.of(make_member(Role.VIEWER, owner.tenant)), Api.of(make_member())
    for caller, status, code in ((viewer, 403, "permission_denied"), (stranger, 404, "not_found")):
        assert_problem(caller.post(f"{at}/users/{NAME}/restore"), status, code)
        assert_problem(caller.delete(f"{at}/deleted-users/{NAME}"), status, code)
    assert_problem(stranger.get(f"{at}/deleted-users"), 404, "not_found")
    assert DeletedUser.objects.count() == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "users/%00/restore"),
        ("delete", "deleted-users/%00"),
        ("get", "topic-copies/%00"),
        ("delete", "topic-copies/%00"),
        ("post", "topic-copies/%00/resume"),
    ],
)
def test_a_deleted_user_named_by_a_zero_byte_is_not_found(method: str, path: str, api: Api, instance: Instance) -> None:
    assert_problem(getattr(api, method)(f"/instances/{instance.pk}/{path}"), 404, "not_found")
