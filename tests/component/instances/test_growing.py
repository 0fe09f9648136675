"""Automatic growth of instances: once, within the plan, and retried after a refusal every quarter of an hour."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import interfaces, services
from instances.choices import ConditionType, OperationType
from instances.limits import BYTES_PER_GB, GROWTH_RETRIED_AFTER
from instances.models import Instance, Operation
from tenants.errors import Conflict
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.fleet import make_running, plugged

pytestmark = pytest.mark.django_db
NOW = timezone.now()


class Room:
    """Implementation of `instances.interfaces.Capacity` with a configurable amount of free storage."""

    def __init__(self) -> None:
        self.free_gb = 10_000

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        if storage_gb - instance.storage_gb > self.free_gb:
            raise Conflict("The brokers have no room.", code="no_room")

    def release_bandwidth(self, instance: Instance) -> None:
        raise AssertionError("nothing is deleted here")


@pytest.fixture(autouse=True)
def room() -> Iterator[Room]:
    result = Room()
    with plugged(interfaces.capacity, result):
        yield result


@pytest.fixture()
def instance(owner: Member) -> Instance:
    made = make_running(owner.tenant, name="orders")
    made.settings |= {"storage_grow_step_gb": 5, "storage_grow_max_gb": made.storage_gb + 8}
    made.save_changes(["settings"])
    return made


def grow(instance: Instance, percent: int, after: timedelta = timedelta()) -> bool:
    used_bytes = instance.storage_gb * BYTES_PER_GB * percent // 100
    return services.grow_storage(instance.pk, used_bytes, NOW + after)


def events(instance: Instance) -> list[str]:
    return [row.action for row in AuditEntry.objects.filter(target_id=instance.pk).order_by("time")]


def test_it_grows_through_a_resize_by_the_system(instance: Instance) -> None:
    before_gb = instance.storage_gb

    assert grow(instance, 89) is False
    assert grow(instance, 91) is True

    instance.refresh_from_db()
    assert instance.storage_gb == before_gb + 5
    operation = Operation.objects.get(instance=instance)
    assert (operation.type, operation.asked_by) == (OperationType.RESIZE, "storage growth")
    assert events(instance) == ["instance.resized"]


def test_a_second_call_with_the_same_figure_grows_nothing(instance: Instance) -> None:
    used_bytes = instance.storage_gb * BYTES_PER_GB * 91 // 100

    assert services.grow_storage(instance.pk, used_bytes, NOW) is True
    assert services.grow_storage(instance.pk, used_bytes, NOW) is False

    assert Operation.objects.filter(instance=instance).count() == 1


def test_it_stops_at_its_end(instance: Instance) -> None:
    most_gb = instance.settings["storage_grow_max_gb"]
    for _try in range(4):
        grow(instance, 100)
        instance.refresh_from_db()

    assert instance.storage_gb == most_gb
    assert "instance.degraded" not in events(instance)


def test_refused_growth_is_an_event_and_is_tried_again_later(instance: Instance, room: Room) -> None:
    room.free_gb = 0

    assert [grow(instance, 95, timedelta(seconds=2 * at)) for at in range(3)] == [False] * 3
    assert events(instance) == ["instance.degraded"]
    instance.refresh_from_db()
    condition = next(item for item in instance.conditions if item["type"] == ConditionType.STORAGE_GROWS)
    assert condition["data"]["code"] == "no_room"

    room.free_gb = 10_000
    assert grow(instance, 95, GROWTH_RETRIED_AFTER - timedelta(seconds=1)) is False
    assert grow(instance, 95, GROWTH_RETRIED_AFTER) is True
    assert events(instance) == ["instance.degraded", "instance.resized", "instance.recovered"]


def test_refusal_is_over_when_there_is_room_again(instance: Instance, room: Room) -> None:
    room.free_gb = 0
    grow(instance, 95)

    assert grow(instance, 50, timedelta(seconds=2)) is False
    assert events(instance) == ["instance.degraded", "instance.recovered"]


def test_instance_without_the_setting_does_not_grow(owner: Member) -> None:
    instance = make_running(owner.tenant, name="plain")

    assert grow(instance, 100) is False
    assert events(instance) == []


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"storage_when_full": "explode"}, "/settings/storage_when_full"),
        ({"storage_retention_minutes_min": 0}, "/settings/storage_retention_minutes_min"),
        ({"storage_retention_minutes_min": 10**9}, "/settings/storage_retention_minutes_min"),
        ({"storage_grow_step_gb": 0, "storage_grow_max_gb": 100}, "/settings/storage_grow_step_gb"),
        ({"storage_grow_step_gb": 5}, "/settings/storage_grow_max_gb"),
        ({"storage_grow_max_gb": 100}, "/settings/storage_grow_step_gb"),
        ({"storage_grow_step_gb": 5, "storage_grow_max_gb": 20}, "/settings/storage_grow_max_gb"),
        ({"storage_grow_step_gb": 5, "storage_grow_max_gb": 999_999}, "/settings/storage_grow_max_gb"),
    ],
)
def test_wrong_setting_is_named_and_changes_nothing(owner: Member, settings: dict[str, Any], pointer: str) -> None:
    api, instance = Api.of(owner), make_running(owner.tenant, name="plain", storage_gb=20)
    for answer in (
        api.patch(f"/instances/{instance.pk}", {"settings": settings}),
        api.post("/instances", {"name": "another", "storage_gb": 20, "settings": settings}),
    ):
        problem = assert_problem(answer, 400, "invalid_request")
        assert pointer in [error["pointer"] for error in problem["errors"]]
    instance.refresh_from_db()
    assert "storage_grow_step_gb" not in instance.settings or instance.settings["storage_grow_step_gb"] is None


def test_settings_are_stored_shown_and_audited(owner: Member) -> None:
    api, instance = Api.of(owner), make_running(owner.tenant, name="plain", storage_gb=20)
    chosen = {
        "storage_when_full": "shrink_retention", "storage_retention_minutes_min": 30,
        "storage_grow_step_gb": 5, "storage_grow_max_gb": 40,
    }  # fmt: skip

    assert api.patch(f"/instances/{instance.pk}?dry_run=true", {"settings": chosen}).status_code == 202
    assert api.get(f"/instances/{instance.pk}").json()["settings"]["storage_when_full"] == "stop"
    assert api.patch(f"/instances/{instance.pk}", {"settings": chosen}).status_code == 202

    shown = api.get(f"/instances/{instance.pk}").json()["settings"]
    assert {name: shown[name] for name in chosen} == chosen
    assert events(instance) == ["instance.configured"]
    off = {"storage_grow_step_gb": None, "storage_grow_max_gb": None}
    assert api.patch(f"/instances/{instance.pk}", {"settings": off}).status_code == 202
    assert api.get(f"/instances/{instance.pk}").json()["settings"]["storage_grow_max_gb"] is None
