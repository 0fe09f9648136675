"""Notices about brokers that do not serve: a badge and a sentence in the list and on the instance's page."""

from __future__ import annotations

import html

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from instances import services
from instances.lifecycle.conditions import LeaderlessPartitions, Observation, StorageUsed
from instances.models import Instance
from tenants.actors import system_actor
from tenants.models import AuditEntry, User
from tests.component.console.fakes import FakeObservation

PART = {"HX-Request": "true"}


def read(ida: Client, address: str) -> str:
    return html.unescape(ida.get(address, headers=PART).content.decode())


def note(
    instance: Instance,
    *,
    silent: set[int] | None = None,
    leaderless: LeaderlessPartitions | None = None,
    storage: StorageUsed | None = None,
) -> None:
    seen = Observation(silent=frozenset(silent or ()), leaderless=leaderless, storage=storage, at=timezone.now())
    services.record_health(instance.pk, seen)


def test_a_silent_broker_and_what_to_do_stand_on_the_list_and_the_page(ida: Client, instance: Instance) -> None:
    note(instance, silent={2})
    for address in (reverse("page-instances"), reverse("page-why", args=[instance.pk])):
        page = read(ida, address)
        assert "Broker silent" in page
        assert "Broker 2 of your 3 does not answer" in page
        assert "The operators see it too." in page
    note(instance)
    assert "does not answer" not in read(ida, reverse("page-instances"))


def test_partitions_without_a_leader_are_named(ida: Client, instance: Instance) -> None:
    note(instance, leaderless=LeaderlessPartitions(count=7, names=("orders.created/0", "orders.created/1")))
    page = read(ida, reverse("page-why", args=[instance.pk]))
    assert "7 partitions have no leader: orders.created/0, orders.created/1 …" in page
    assert "No leader" in page


@pytest.mark.usefixtures("observation")
def test_members_of_other_tenants_see_nothing(stranger: object, browse: object, instance: Instance) -> None:
    note(instance, silent={2})
    eve: Client = browse(stranger)  # type: ignore[operator]
    assert "does not answer" not in read(eve, reverse("page-instances"))
    assert eve.get(reverse("page-why", args=[instance.pk])).status_code == 404


def test_a_suspended_instance_needs_attention_and_says_why(
    ida: Client, instance: Instance, observation: FakeObservation
) -> None:
    services.suspend_instance(acting=system_actor("tests"), instance=instance, note="Write to us.")
    page = read(ida, reverse("page-instances"))
    assert "Suspended: Suspended by the operator" in page
    assert "Write to us." in page
    assert "All well" not in page


def test_an_instance_that_is_well_needs_nobody(ida: Client, instance: Instance) -> None:
    page = read(ida, reverse("page-instances"))
    assert "All well" in page
    assert 'class="note warn need"' not in page


@pytest.mark.parametrize(("percent", "badge"), [(80, "Storage 80 %"), (93, "Storage 90 %")])
def test_storage_near_its_end_is_shown(ida: Client, instance: Instance, percent: int, badge: str) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes * percent // 100))
    for address in (reverse("page-instances"), reverse("page-why", args=[instance.pk])):
        page = read(ida, address)
        assert "of the storage is used" in page
    assert badge in page
    note(instance, storage=StorageUsed())
    assert "of the storage is used" not in read(ida, reverse("page-instances"))


def test_storage_that_is_used_up_stops_produce_and_says_what_to_do(ida: Client, instance: Instance) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes, is_full=True))
    page = read(ida, reverse("page-why", args=[instance.pk]))
    assert "Storage full" in page
    assert "Produce is refused, not delayed: the storage is used up." in page
    assert "No client waits" not in page
    assert "All well" not in read(ida, reverse("page-instances"))


def test_page_in_chinese_says_that_the_storage_is_used_up(ida: Client, instance: Instance) -> None:
    note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes, is_full=True))
    User.objects.update(language="zh-hans")
    assert "存储已用完" in read(ida, reverse("page-why", args=[instance.pk]))


def test_each_level_of_storage_is_one_event(instance: Instance) -> None:
    for percent in (50, 81, 82, 79, 91, 92, 89, 91, 85, 77):
        note(instance, storage=StorageUsed(used_bytes=instance.storage_bytes * percent // 100))
    rows = AuditEntry.objects.filter(target_id=instance.pk, action__in=("instance.degraded", "instance.recovered"))
    messages = [row.after["message"] for row in rows.order_by("time")]
    assert messages == [
        "80 % of the storage bought is used.",
        "90 % of the storage bought is used.",
        "80 % of the storage bought is used.",
        "",
    ]
