"""Purge of deleted instances: it releases their storage before the time is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import limits
from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance, Operation
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fleet import make_instance, make_running

pytestmark = pytest.mark.django_db


def make_deleted(owner: Member, **fields: object) -> Instance:
    now = timezone.now()
    deleted = {"phase": Phase.DELETING.value, "deleted_at": now, "restorable_until": now + timedelta(days=7)}
    return make_running(owner.tenant, **(deleted | fields))


def test_an_instance_without_a_topic_is_purged_when_it_is_deleted_and_says_so(api: Api, owner: Member) -> None:
    instance = make_running(owner.tenant, storage_gb=1_000)
    answer = api.delete(f"/instances/{instance.pk}").json()
    assert answer["steps"][0]["data"] == {"restorable_until": None}
    assert "nothing can be restored" in answer["steps"][0]["fact"]
    instance.refresh_from_db()
    assert instance.restorable_until is not None
    assert instance.restorable_until <= timezone.now()
    assert instance.reason == Reason.DELETED_FOR_GOOD
    assert_problem(api.post(f"/instances/{instance.pk}/restore"), 409, "not_restorable")
    assert_problem(api.post(f"/instances/{instance.pk}/purge"), 409, "conflict")


def test_an_instance_with_a_topic_is_kept_and_says_until_when(
    api: Api, owner: Member, data_plane: FakeDataPlane
) -> None:
    instance = make_running(owner.tenant)
    data_plane.add(instance.pk, "orders")
    step = api.delete(f"/instances/{instance.pk}").json()["steps"][0]
    instance.refresh_from_db()
    assert instance.restorable_until is not None
    assert instance.restorable_until > timezone.now() + limits.INSTANCE_RESTORE_PERIOD - timedelta(minutes=1)
    assert step["data"]["restorable_until"] == instance.restorable_until.isoformat()
    assert "can be restored until" in step["fact"]


def test_an_instance_whose_only_topic_was_deleted_is_kept_so_that_both_can_be_restored(
    api: Api, owner: Member, data_plane: FakeDataPlane
) -> None:
    instance = make_running(owner.tenant)
    at = f"/instances/{instance.pk}"
    data_plane.add(instance.pk, "orders")
    assert api.delete(f"{at}/topics/orders").status_code == 204
    del data_plane.descriptions[instance.pk, "orders"]  # brokers hide it from clients
    assert api.delete(at).status_code == 202
    instance.refresh_from_db()
    assert instance.reason == Reason.DELETED_BY_USER
    assert api.post(f"{at}/restore").status_code == 202
    Instance.objects.filter(pk=instance.pk).update(phase=Phase.RUNNING.value)
    assert [item["name"] for item in api.get(f"{at}/deleted-topics").json()["items"]] == ["orders"]
    assert api.post(f"{at}/topics/orders/restore").status_code == 204
    assert api.delete(at).status_code == 202  # before brokers show the restored topic
    instance.refresh_from_db()
    assert instance.reason == Reason.DELETED_BY_USER


def test_an_instance_whose_brokers_do_not_answer_is_kept(api: Api, owner: Member, data_plane: FakeDataPlane) -> None:
    instance = make_running(owner.tenant)
    data_plane.is_down = True
    assert api.delete(f"/instances/{instance.pk}").status_code == 202
    instance.refresh_from_db()
    assert instance.reason == Reason.DELETED_BY_USER


def test_purging_ends_the_time_to_restore(
    api: Api,
    owner: Member,
    data_plane: FakeDataPlane,
    asked_to_reconcile: list[str],
    django_capture_on_commit_callbacks: Any,
) -> None:
    instance = make_running(owner.tenant)
    data_plane.add(instance.pk, "orders")
    assert_problem(api.post(f"/instances/{instance.pk}/purge"), 409, "not_deleted")
    api.delete(f"/instances/{instance.pk}")
    assert api.post(f"/instances/{instance.pk}/purge?dry_run=true").status_code == 202
    assert asked_to_reconcile == []
    with django_capture_on_commit_callbacks(execute=True):
        answer = api.post(f"/instances/{instance.pk}/purge")
    assert answer.status_code == 202
    assert answer.json()["type"] == "instance.purge"
    assert asked_to_reconcile == [instance.pk]
    assert AuditEntry.objects.filter(action="instance.purge_requested", target_id=instance.pk).exists()
    assert_problem(api.post(f"/instances/{instance.pk}/restore"), 409, "not_restorable")
    assert Operation.objects.filter(instance=instance, type="instance.purge").count() == 1


@pytest.mark.parametrize("sizes", [(limits.DELETED_STORAGE_GB_MAX,), (1_000, 1_000), (500, 700, 900)])
def test_creating_and_growing_stop_while_deleted_instances_hold_too_much(
    sizes: tuple[int, ...], api: Api, owner: Member
) -> None:
    alive = make_running(owner.tenant, storage_gb=20)
    deleted = [make_deleted(owner, storage_gb=size) for size in sizes]
    problem = assert_problem(api.post("/instances", {"name": "again"}), 403, "deleted_storage")
    assert f"{sum(sizes)} GB" in problem["detail"].replace(",", "")
    assert "Purge" in problem["detail"]
    assert_problem(api.patch(f"/instances/{alive.pk}", {"storage_gb": 21}), 403, "deleted_storage")
    assert api.patch(f"/instances/{alive.pk}", {"storage_gb": 19}).status_code == 202
    Instance.objects.filter(pk=deleted[0].pk).update(phase=Phase.DELETED.value)
    assert api.post("/instances", {"name": "again"}).status_code == 202


def test_a_failed_instance_is_not_retried_while_deleted_instances_hold_too_much(api: Api, owner: Member) -> None:
    failed = make_running(owner.tenant, phase=Phase.FAILED.value, first_running_at=None)
    deleted = make_deleted(owner, storage_gb=limits.DELETED_STORAGE_GB_MAX)
    assert_problem(api.post(f"/instances/{failed.pk}/retry"), 403, "deleted_storage")
    Instance.objects.filter(pk=deleted.pk).update(phase=Phase.DELETED.value)
    assert api.post(f"/instances/{failed.pk}/retry").status_code == 202


def test_deleting_and_creating_again_and_again_stops_at_the_limit(
    api: Api, owner: Member, data_plane: FakeDataPlane
) -> None:
    size, made = 700, 0
    while made < 20:
        answer = api.post("/instances", {"name": f"loop-{made}", "plan": "large", "storage_gb": size})
        if answer.status_code != 202:
            break
        made += 1
        instance = Instance.objects.get(name=f"loop-{made - 1}")
        Instance.objects.filter(pk=instance.pk).update(phase=Phase.RUNNING.value, first_running_at=timezone.now())
        data_plane.add(instance.pk, "orders")
        assert api.delete(f"/instances/{instance.pk}").status_code == 202
    assert_problem(answer, 403, "deleted_storage")
    assert made == -(-limits.DELETED_STORAGE_GB_MAX // size)


def test_too_many_instances_says_how_many_of_them_are_deleted(
    api: Api, owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instances.services.creating.INSTANCES_PER_TENANT_MAX", 2)
    make_instance(owner.tenant)
    make_deleted(owner, storage_gb=1)
    problem = assert_problem(api.post("/instances", {"name": "third"}), 403, "quota_exceeded")
    assert problem["detail"] == (
        "A tenant has at most 2 instances, and 1 deleted ones count until they are purged. Purge one."
    )
