"""Cloning a topic over REST: the settings that are copied, and what is not."""

from __future__ import annotations

import pytest

from instances.models import Instance, TopicAllowList
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

OWN = {"retention.ms": "5000", "cleanup.policy": "compact"}


@pytest.fixture
def instance(owner: Member, data_plane: FakeDataPlane) -> Instance:
    running = make_running(owner.tenant)
    data_plane.add(running.pk, "orders", 5)
    data_plane.configs[running.pk, "orders"] = dict(OWN)
    TopicAllowList.objects.create(instance=running, topic="orders", produce_ips=["10.0.0.1"])
    return running


@pytest.fixture
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/topics/orders/clone"


def test_partitions_and_own_settings_are_taken_over_and_the_audit_log_says_from_where(
    api: Api, at: str, instance: Instance, data_plane: FakeDataPlane
) -> None:
    answer = api.post(at, {"name": "orders.copy"})
    assert answer.status_code == 201, answer.content
    assert answer["Location"].endswith("/topics/orders.copy")
    assert (answer.json()["name"], answer.json()["partitions"]) == ("orders.copy", 5)
    assert answer.json()["allow_list"]["produce"] == []
    assert data_plane.configs[instance.pk, "orders.copy"] == OWN
    entry = AuditEntry.objects.get(action="topic.created")
    assert entry.after == {"partitions": 5, "replication_factor": 1, "config": OWN, "cloned_from": "orders"}


def test_a_dry_run_creates_nothing(api: Api, at: str, instance: Instance, data_plane: FakeDataPlane) -> None:
    answer = api.post(f"{at}?dry_run=true", {"name": "orders.copy"})
    assert (answer.status_code, answer.json()["partitions"]) == (201, 5)
    assert (instance.pk, "orders.copy") not in data_plane.descriptions


def test_a_name_that_is_taken_or_none_is_refused(api: Api, at: str) -> None:
    assert_problem(api.post(at, {"name": "orders"}), 409, "already_exists")
    assert_problem(api.post(at, {"name": "a/b"}), 400)
    assert_problem(api.post(at, {"name": "copy", "records": True}), 400)
    assert_problem(api.post(at.replace("orders", "none"), {"name": "copy"}), 404, "not_found")


def test_roles_without_the_permission_and_other_tenants_are_refused(api: Api, at: str, owner: Member) -> None:
    assert_problem(Api.of(make_member(Role.VIEWER, owner.tenant)).post(at, {"name": "copy"}), 403)
    assert_problem(Api.of(make_member()).post(at, {"name": "copy"}), 404)
