"""Limits of a tenant without a verified owner, in installations that send mail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from instances import access, interfaces, services
from instances.limits import INSTANCE_RESTORE_PERIOD
from instances.models import Instance
from tenants.actors import member_actor
from tenants.errors import QuotaExceeded
from tenants.limits import UNVERIFIED_BANDWIDTH_MB_S_MAX, UNVERIFIED_STORAGE_GB_MAX
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import catalogue, make_running, plugged

pytestmark = pytest.mark.django_db
WITHIN = {"bandwidth_mb_s": UNVERIFIED_BANDWIDTH_MB_S_MAX, "storage_gb": UNVERIFIED_STORAGE_GB_MAX}


@pytest.fixture(autouse=True)
def _mail(settings: Any) -> Iterator[None]:
    settings.MAIL_IS_CONFIGURED = True
    with plugged(interfaces.plan_catalogue, catalogue), plugged(interfaces.reconcile, lambda _id: None):
        yield


@pytest.fixture()
def owner() -> Member:
    return make_member()


def verify(member: Member) -> None:
    member.user.email_verified_at = timezone.now()
    member.user.save()


@pytest.mark.parametrize("wider", ["bandwidth_mb_s", "storage_gb"])
def test_an_unverified_tenant_beyond_the_ceiling_is_asked_to_verify(owner: Member, wider: str) -> None:
    api = Api.of(owner)
    beyond = api.post("/instances", {"name": "wide"} | WITHIN | {wider: WITHIN[wider] + 1})
    problem = assert_problem(beyond, 403, "unverified")
    assert problem["errors"][0]["pointer"] == f"/{wider}"
    assert "Verify yours in the console" in problem["detail"]
    assert not Instance.objects.exists()
    assert api.post("/instances", {"name": "narrow"} | WITHIN).status_code == 202
    second = {"name": "second", "bandwidth_mb_s": 1, "storage_gb": 1}
    assert_problem(api.post("/instances", second), 403, "unverified")
    verify(owner)
    assert api.post("/instances", second).status_code == 202


def test_an_unverified_tenants_instance_does_not_grow_beyond_the_ceiling_and_may_shrink(owner: Member) -> None:
    large = make_running(owner.tenant, bandwidth_mb_s=40, storage_gb=150)
    acting = member_actor(owner)

    def resize(**size: int) -> object:
        return services.resize_instance(
            acting=acting, instance=access.instance(acting, large.pk), bandwidth_mb_s=size.get("bandwidth_mb_s"),
            storage_gb=size.get("storage_gb"),
        )  # fmt: skip

    with pytest.raises(QuotaExceeded) as refusal:
        resize(bandwidth_mb_s=41)
    assert refusal.value.code == "unverified"
    assert resize(bandwidth_mb_s=30, storage_gb=150) is not None
    with pytest.raises(QuotaExceeded):
        resize(storage_gb=151)
    verify(owner)
    assert resize(bandwidth_mb_s=41) is not None


def test_another_owner_with_a_mailbox_is_enough_and_another_member_is_not(owner: Member) -> None:
    api, wide = Api.of(owner), {"name": "wide", "bandwidth_mb_s": 40, "storage_gb": 40}
    verify(make_member("admin", owner.tenant))
    assert_problem(api.post("/instances", wide), 403, "unverified")
    verify(make_member("owner", owner.tenant))
    assert api.post("/instances", wide).status_code == 202


def test_storage_of_deleted_instances_counts_until_they_are_purged(owner: Member) -> None:
    now = timezone.now()
    deleted = make_running(
        owner.tenant, storage_gb=UNVERIFIED_STORAGE_GB_MAX - 5, bandwidth_mb_s=UNVERIFIED_BANDWIDTH_MB_S_MAX,
        phase="deleting", deleted_at=now, restorable_until=now + INSTANCE_RESTORE_PERIOD,
    )  # fmt: skip
    api = Api.of(owner)
    problem = assert_problem(api.post("/instances", {"name": "a", "storage_gb": 6}), 403, "unverified")
    assert [error["pointer"] for error in problem["errors"]] == ["/storage_gb"]
    assert "until they are purged" in problem["detail"]
    assert api.post("/instances?dry_run=true", {"name": "a", "storage_gb": 5}).status_code == 202
    Instance.objects.filter(pk=deleted.pk).update(phase="deleted")
    assert api.post("/instances", {"name": "a", "storage_gb": 6}).status_code == 202


def test_a_failed_instance_is_retried_within_the_ceiling_alone(owner: Member) -> None:
    failed = make_running(owner.tenant, phase="failed", first_running_at=None, **WITHIN)
    api = Api.of(owner)
    retry = f"/instances/{failed.pk}/retry"
    second = api.post("/instances", {"name": "second", "bandwidth_mb_s": 1, "storage_gb": 1})
    assert second.status_code == 202
    problem = assert_problem(api.post(retry), 403, "unverified")
    assert [error["pointer"] for error in problem["errors"]] == ["/bandwidth_mb_s", "/storage_gb"]
    failed.refresh_from_db()
    assert failed.phase == "failed"
    Instance.objects.filter(name="second").update(phase="deleted")
    assert api.post(f"{retry}?dry_run=true").status_code == 202
    Instance.objects.filter(name="second").update(phase="running")
    verify(owner)
    assert api.post(retry).status_code == 202


def test_where_no_mail_is_configured_there_is_no_ceiling(owner: Member, settings: Any) -> None:
    settings.MAIL_IS_CONFIGURED = False
    assert Api.of(owner).post("/instances", {"name": "w", "bandwidth_mb_s": 40, "storage_gb": 40}).status_code == 202


def test_the_ceiling_is_published(owner: Member) -> None:
    listed = {item["name"]: item["value"] for item in Api.of(owner).get("/limits?page_size=200").json()["items"]}
    assert listed["unverified_bandwidth_mb_s_max"] == UNVERIFIED_BANDWIDTH_MB_S_MAX
    assert listed["unverified_storage_gb_max"] == UNVERIFIED_STORAGE_GB_MAX
