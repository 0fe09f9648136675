"""Answers of the API of instances to valid and invalid requests."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from instances import limits
from instances.interfaces import BrokerBandwidth, Flow
from instances.lifecycle.phases import Phase
from instances.models import Instance, Operation
from tenants.choices import SuspensionReason, TenantStatus
from tenants.models import Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_data_plane import FakeDataPlane, FakeObservation
from tests.testkit.fleet import make_instance, make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant, name="orders")


def test_a_created_instance_is_followed_through_its_operation(
    api: Api, asked_to_reconcile: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        answer = api.post("/instances", {"name": "orders-prod"})
    assert answer.status_code == 202
    operation = answer.json()
    assert answer["Location"] == f"/api/v1/operations/{operation['id']}"
    assert operation["type"] == "instance.create"
    assert operation["state"] == "pending"
    assert [step["state"] for step in operation["steps"]] == ["done", *["pending"] * 5]
    assert asked_to_reconcile == [operation["resource_id"]]
    shown = api.get(f"/instances/{operation['resource_id']}").json()
    assert shown["name"] == "orders-prod"
    assert shown["plan"] == "small"
    assert shown["limits"] == {"bandwidth_mb_s": 5, "storage_gb": 20, "partitions_max": 50}
    assert shown["status"]["phase"] == "requested"
    assert shown["bootstrap_servers"] == ""
    assert shown["settings"]["auto_create_topics"] is True


def test_the_plan_is_the_smallest_that_holds_the_size(api: Api) -> None:
    answer = api.post("/instances", {"name": "large", "bandwidth_mb_s": 60})
    assert api.get(f"/instances/{answer.json()['resource_id']}").json()["plan"] == "large"


def test_a_dry_run_asks_nobody_for_work(
    api: Api, asked_to_reconcile: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        assert api.post("/instances?dry_run=true", {"name": "orders"}).status_code == 202
    assert asked_to_reconcile == []
    assert Instance.objects.count() == Operation.objects.count() == 0


def test_a_dry_run_of_a_creation_shows_the_instance_and_names_nothing_that_does_not_exist(api: Api) -> None:
    answer = api.post("/instances?dry_run=true", {"name": "orders", "bandwidth_mb_s": 60})
    assert "Location" not in answer.headers
    shown = answer.json()
    assert (shown["id"], shown["resource_id"], shown["type"]) == (None, None, "instance.create")
    assert shown["planned"] == {
        "name": "orders",
        "plan": "large",
        "cluster_type": "shared",
        "limits": {"bandwidth_mb_s": 60, "storage_gb": 500, "partitions_max": 500},
        "settings": {
            "auto_create_topics": True,
            "default_partitions": 3,
            "default_replication_factor": None,
            "allow_everyone_if_no_acl": False,
            "bandwidth_policy": "adaptive",
            "quota_scope": "cluster",
            "storage_when_full": "stop",
            "storage_retention_minutes_min": 60,
            "storage_grow_step_gb": None,
            "storage_grow_max_gb": None,
        },
        "protected": False,
    }
    assert api.post("/instances", {"name": "orders"}).json()["planned"] is None


def test_a_dry_run_of_a_deletion_names_the_instance_but_no_operation(api: Api, instance: Instance) -> None:
    answer = api.delete(f"/instances/{instance.pk}?dry_run=true")
    assert "Location" not in answer.headers
    assert (answer.json()["id"], answer.json()["resource_id"]) == (None, instance.pk)


def test_the_same_key_twice_makes_one_instance(api: Api) -> None:
    first = api.post("/instances", {"name": "once"}, Idempotency_Key="key-1")
    second = api.post("/instances", {"name": "once"}, Idempotency_Key="key-1")
    assert first.json() == second.json()
    assert Instance.objects.count() == 1
    assert_problem(api.post("/instances", {"name": "other"}, Idempotency_Key="key-1"), 422)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": "Orders"}, "/name"),
        ({"name": "-orders"}, "/name"),
        ({"name": "orders-"}, "/name"),
        ({"name": "o" * 41}, "/name"),
        ({"name": "orders\n"}, "/name"),
        ({"name": 5}, "/name"),
        ({"name": "a", "bandwidth_mb_s": 0}, "/bandwidth_mb_s"),
        ({"name": "a", "bandwidth_mb_s": "5"}, "/bandwidth_mb_s"),
        ({"name": "a", "bandwidth_mb_s": True}, "/bandwidth_mb_s"),
        ({"name": "a", "storage_gb": -1}, "/storage_gb"),
        ({"name": "a", "plan": "gold"}, "/plan"),
        ({"name": "a", "cluster_type": "moon"}, "/cluster_type"),
        ({"name": "a", "settings": {"default_partitions": 0}}, "/settings/default_partitions"),
        ({"name": "a", "settings": {"colour": 1}}, "/settings/colour"),
        ({"name": "a", "protected": "yes"}, "/protected"),
    ],
)
def test_a_wrong_value_is_named_and_changes_nothing(api: Api, body: dict[str, Any], pointer: str) -> None:
    problem = assert_problem(api.post("/instances", body), 400, "invalid_request")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert Instance.objects.count() == 0


def test_more_than_the_plan_reaches_is_quota_exceeded(api: Api) -> None:
    body = {"name": "a", "plan": "small", "bandwidth_mb_s": 51}
    problem = assert_problem(api.post("/instances", body), 403, "quota_exceeded")
    assert problem["errors"][0]["pointer"] == "/bandwidth_mb_s"


def test_too_many_instances_are_quota_exceeded(api: Api, owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    from instances.services import creating

    monkeypatch.setattr(creating, "INSTANCES_PER_TENANT_MAX", 1)
    make_running(owner.tenant)
    assert_problem(api.post("/instances", {"name": "second"}), 403, "quota_exceeded")


def test_a_name_is_taken_until_its_instance_is_gone(api: Api, instance: Instance) -> None:
    assert_problem(api.post("/instances", {"name": "orders"}), 409, "name_taken")
    Instance.objects.update(phase=Phase.DELETED.value)
    assert api.post("/instances", {"name": "orders"}).status_code == 202


def test_two_tenants_may_use_the_same_name(instance: Instance) -> None:
    assert Api.of(make_member()).post("/instances", {"name": "orders"}).status_code == 202


def test_an_unpaid_tenant_may_read_but_not_buy(api: Api, owner: Member, instance: Instance) -> None:
    tenant = owner.tenant
    tenant.status, tenant.suspension_reason = TenantStatus.SUSPENDED, SuspensionReason.UNPAID
    tenant.save()
    assert_problem(api.post("/instances", {"name": "more"}), 402, "payment_required")
    assert_problem(api.patch(f"/instances/{instance.pk}", {"bandwidth_mb_s": 6}), 402)
    assert api.get(f"/instances/{instance.pk}").status_code == 200


def test_a_list_is_filtered_and_read_in_pages(api: Api, owner: Member) -> None:
    for number in range(5):
        make_running(owner.tenant, name=f"many-{number}")
    make_running(owner.tenant, name="other")
    first = api.get("/instances?page_size=3&contains=many").json()
    assert len(first["items"]) == 3
    rest = api.get(f"/instances?page_size=3&contains=many&page_token={first['next_page_token']}").json()
    assert rest["next_page_token"] is None
    names = [item["name"] for item in first["items"] + rest["items"]]
    assert sorted(names) == [f"many-{number}" for number in range(5)]
    assert api.get("/instances?phase=failed").json()["items"] == []


def test_a_change_needs_the_version_it_was_made_for(api: Api, instance: Instance) -> None:
    etag = api.get(f"/instances/{instance.pk}")["ETag"]
    assert api.patch(f"/instances/{instance.pk}", {"name": "first"}, If_Match=etag).status_code == 200
    assert_problem(api.patch(f"/instances/{instance.pk}", {"name": "second"}, If_Match=etag), 412)
    assert_problem(api.delete(f"/instances/{instance.pk}", If_Match=etag), 412)
    assert Instance.objects.get(pk=instance.pk).name == "first"


def test_a_resize_answers_202_and_shows_updating(api: Api, instance: Instance) -> None:
    answer = api.patch(f"/instances/{instance.pk}", {"bandwidth_mb_s": 20})
    assert answer.status_code == 202
    assert answer.json()["status"]["phase"] == "updating"
    assert answer["Location"].startswith("/api/v1/operations/op-")
    again = api.patch(f"/instances/{instance.pk}", {"bandwidth_mb_s": 20})
    assert again.status_code == 200


def test_another_plan_brings_its_sizes(api: Api, instance: Instance) -> None:
    shown = api.patch(f"/instances/{instance.pk}", {"plan": "large"}).json()
    assert shown["limits"] == {"bandwidth_mb_s": 500, "storage_gb": 500, "partitions_max": 500}


def test_a_protected_instance_is_not_deleted(api: Api, instance: Instance) -> None:
    assert api.patch(f"/instances/{instance.pk}", {"protected": True}).json()["protected"] is True
    assert_problem(api.delete(f"/instances/{instance.pk}"), 409, "protected")
    assert api.patch(f"/instances/{instance.pk}", {"protected": False}).status_code == 200
    assert api.delete(f"/instances/{instance.pk}").status_code == 202


def test_a_deleted_instance_is_shown_until_it_cannot_be_restored(
    api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders")
    assert api.delete(f"/instances/{instance.pk}").json()["type"] == "instance.delete"
    shown = api.get(f"/instances/{instance.pk}").json()
    assert shown["status"]["phase"] == "deleting"
    assert shown["restorable_until"] is not None
    assert_problem(api.delete(f"/instances/{instance.pk}"), 409)
    assert_problem(api.patch(f"/instances/{instance.pk}", {"bandwidth_mb_s": 9}), 409, "instance_not_changeable")
    assert api.post(f"/instances/{instance.pk}/restore").status_code == 202
    api.delete(f"/instances/{instance.pk}")
    Instance.objects.update(restorable_until=timezone.now())
    assert_problem(api.post(f"/instances/{instance.pk}/restore"), 409, "not_restorable")


def test_an_act_that_the_phase_does_not_allow_is_a_conflict(api: Api, owner: Member, instance: Instance) -> None:
    assert_problem(api.post(f"/instances/{instance.pk}/restore"), 409)
    assert_problem(api.post(f"/instances/{instance.pk}/retry"), 409)
    requested = make_instance(owner.tenant)
    for path in ("topics", "throughput", "metrics", "quotas"):
        assert_problem(api.get(f"/instances/{requested.pk}/{path}"), 409, "instance_not_reachable")
    assert_problem(api.patch(f"/instances/{requested.pk}", {"bandwidth_mb_s": 9}), 409)


def test_topics_are_created_grown_configured_and_deleted(api: Api, instance: Instance) -> None:
    at = f"/instances/{instance.pk}/topics"
    made = api.post(at, {"name": "orders", "partitions": 2, "config": {"retention.ms": "1000"}})
    assert made.status_code == 201
    assert made["Location"] == f"/api/v1{at}/orders"
    assert made.json()["partitions"] == 2
    assert_problem(api.post(at, {"name": "orders"}), 409, "already_exists")
    grown = api.patch(f"{at}/orders", {"partitions": 4, "config": {"retention.ms": None}})
    assert grown.json()["partitions"] == len(grown.json()["partition_list"]) == 4
    retention = next(entry for entry in grown.json()["config"] if entry["name"] == "retention.ms")
    assert retention["is_default"] is True
    assert_problem(api.patch(f"{at}/orders", {"partitions": 3}), 400)
    assert_problem(api.patch(f"{at}/orders", {"config": {"no.such": "1"}}), 400)
    assert api.delete(f"{at}/orders").status_code == 204
    assert_problem(api.get(f"{at}/orders"), 404)


def test_a_dry_run_of_a_topics_change_answers_what_would_be(
    api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders", partitions=3)
    at = f"/instances/{instance.pk}/topics/orders"
    before = api.get(at).json()
    wanted = {"partitions": 6, "config": {"retention.ms": "1000"}, "allow_list": {"produce": ["10.0.0.1", "10.0.0.1"]}}
    would_be = api.patch(f"{at}?dry_run=true", wanted).json()
    assert would_be["partitions"] == len(would_be["partition_list"]) == 6
    assert would_be["allow_list"] == {"produce": ["10.0.0.1"], "consume": [], "administer": []}
    retention = next(entry for entry in would_be["config"] if entry["name"] == "retention.ms")
    assert (retention["value"], retention["is_default"]) == ("1000", False)
    assert api.get(at).json() == before


def test_a_dry_run_shows_a_config_that_goes_back_to_its_default(
    api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.add(instance.pk, "orders")
    at = f"/instances/{instance.pk}/topics/orders"
    api.patch(at, {"config": {"retention.ms": "1000"}})
    reset = {"config": {"retention.ms": None, "cleanup.policy": None}}
    shown = {entry["name"]: entry for entry in api.patch(f"{at}?dry_run=true", reset).json()["config"]}
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["is_default"]) == (None, True)
    assert (shown["cleanup.policy"]["value"], shown["cleanup.policy"]["is_default"]) == ("delete", True)


@pytest.mark.parametrize("suffix", ["", "?dry_run=true"])
def test_more_replicas_to_be_in_sync_than_there_are_is_accepted_with_a_warning(
    suffix: str, api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    at = f"/instances/{instance.pk}/topics"
    wide = {"config": {"min.insync.replicas": "2"}}
    made = api.post(f"{at}{suffix}", {"name": "orders", "replication_factor": 1, **wide})
    assert made.status_code == 201
    (warning,) = made.json()["warnings"]
    assert warning["code"] == "min_insync_above_replicas"
    assert "min.insync.replicas is 2, and each partition has 1" in warning["detail"]
    data_plane.add(instance.pk, "later")
    assert api.get(f"{at}/later").json()["warnings"] == []
    assert api.patch(f"{at}/later{suffix}", wide).json()["warnings"] == [warning]
    assert api.post(at, {"name": "sound", "config": {"min.insync.replicas": "1"}}).json()["warnings"] == []
    slow = {"penstock.consume.byte.rate": "30000", "max.message.bytes": "600000"}
    (warning,) = api.post(at, {"name": "slow", "config": slow}).json()["warnings"]
    assert warning["code"] == "limit_below_one_batch"
    assert "waits up to 20 s" in warning["detail"]


def test_the_default_number_of_partitions_is_the_instances_setting(api: Api, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(settings=instance.settings | {"default_partitions": 9})
    assert api.post(f"/instances/{instance.pk}/topics", {"name": "orders"}).json()["partitions"] == 9


def test_topics_are_kept_on_each_broker_unless_the_tenant_chooses(api: Api, instance: Instance) -> None:
    at = f"/instances/{instance.pk}"
    brokers = len(instance.endpoints)
    assert brokers > 1
    plan = f"{at}/topics?dry_run=true"
    assert api.get(at).json()["settings"]["default_replication_factor"] == brokers
    assert api.post(plan, {"name": "orders"}).json()["replication_factor"] == brokers

    for chosen, shown in ((1, 1), (None, brokers)):
        Instance.objects.filter(pk=instance.pk).update(phase="running")
        assert api.patch(at, {"settings": {"default_replication_factor": chosen}}).status_code == 202
        assert api.get(at).json()["settings"]["default_replication_factor"] == shown
        assert api.post(plan, {"name": "orders"}).json()["replication_factor"] == shown

    requested = make_instance(instance.tenant)
    assert api.get(f"/instances/{requested.pk}").json()["settings"]["default_replication_factor"] is None


def test_a_topics_etag_changes_with_it_and_not_with_its_messages(
    api: Api, instance: Instance, data_plane: FakeDataPlane, observation: FakeObservation
) -> None:
    data_plane.add(instance.pk, "orders")
    at = f"/instances/{instance.pk}/topics/orders"
    etag = api.get(at)["ETag"]
    observation.sizes = {"orders": (10_000, 7)}
    assert api.get(at)["ETag"] == etag
    assert api.get(at).json()["size_bytes"] == 10_000
    assert api.patch(at, {"partitions": 4}, If_Match=etag).status_code == 200
    assert_problem(api.patch(at, {"partitions": 5}, If_Match=etag), 412)


def test_allow_lists_are_brought_into_one_form(api: Api, instance: Instance, data_plane: FakeDataPlane) -> None:
    data_plane.add(instance.pk, "orders")
    at = f"/instances/{instance.pk}/topics/orders"
    lists = {
        "produce": ["10.0.0.0/8", "::ffff:192.0.2.1", "10.0.0.0/8"],
        "consume": ["2001:db8::/32"],
        "administer": ["192.0.2.7", "192.0.2.7"],
    }
    shown = api.patch(at, {"allow_list": lists}).json()["allow_list"]
    expected = {"produce": ["10.0.0.0/8", "192.0.2.1"], "consume": ["2001:db8::/32"], "administer": ["192.0.2.7"]}
    assert shown == expected
    problem = assert_problem(api.patch(at, {"allow_list": {"produce": ["10.0.0.1", "10.1.2.3/8", "x"]}}), 400)
    assert [error["pointer"] for error in problem["errors"]] == ["/allow_list/produce/1", "/allow_list/produce/2"]
    too_many = [f"10.0.{number // 256}.{number % 256}" for number in range(limits.ALLOW_LIST_ENTRIES_MAX + 1)]
    assert_problem(api.patch(at, {"allow_list": {"produce": too_many}}), 400)
    assert api.get(at).json()["allow_list"] == shown


def test_silent_brokers_answer_503_with_when_to_come_back(
    api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    data_plane.is_down = True
    answer = api.get(f"/instances/{instance.pk}/topics")
    assert_problem(answer, 503, "unavailable")
    assert answer["Retry-After"] == "1"


def test_throughput_tells_bought_and_used_of_the_last_full_second(
    api: Api, instance: Instance, observation: FakeObservation
) -> None:
    observation.points = ((1_700_000_001_000, 300, 400, 25), (1_700_000_002_000, 1, 2, 0))
    shown = api.get(f"/instances/{instance.pk}/throughput").json()
    assert shown["bought"] == {"produce_bytes_per_s": 5_000_000, "consume_bytes_per_s": 5_000_000}
    assert shown["in_use"] == {"produce_bytes_per_s": 300, "consume_bytes_per_s": 400}
    unknown = {"reason": None, "loop_used_ms": None, "produce": None, "consume": None}
    assert shown["by_broker"] == [{"broker_id": 1, "produce_bytes_per_s": 10, "consume_bytes_per_s": 20, **unknown}]
    assert (shown["policy"], shown["wanted"], shown["admitted"]) == (None, None, None)
    points = api.get(f"/instances/{instance.pk}/metrics?since_ms=1700000002000").json()["points"]
    assert points == [{"at_ms": 1_700_000_002_000, "produce_bytes": 1, "consume_bytes": 2, "delay_ms_max": 0}]


def test_throughput_has_the_share_of_each_broker_with_its_reason(
    api: Api, instance: Instance, observation: FakeObservation
) -> None:
    flow = Flow(leaders=3, share_bytes_per_s=4_000, wanted_bytes_per_s=9_000, admitted_bytes_per_s=3_900)
    part = BrokerBandwidth(
        broker_id=1, policy="adaptive", reason="follows_demand", produce=flow, consume=flow, loop_used_ms=1_250
    )
    observation.shares = {1: part}
    shown = api.get(f"/instances/{instance.pk}/throughput").json()
    assert shown["policy"] == "adaptive"
    assert shown["wanted"] == {"produce_bytes_per_s": 9_000, "consume_bytes_per_s": 9_000}
    assert shown["by_broker"][0]["reason"] == "follows_demand"
    assert shown["by_broker"][0]["loop_used_ms"] == 1_250
    assert shown["by_broker"][0]["produce"] == {
        "leaders": 3, "share_bytes_per_s": 4_000, "wanted_bytes_per_s": 9_000, "admitted_bytes_per_s": 3_900,
    }  # fmt: skip
    observation.shares = {1: part, 2: None}
    assert api.get(f"/instances/{instance.pk}/throughput").json()["wanted"] is None


def test_events_tell_what_happened_to_the_instance_and_its_topics(api: Api, instance: Instance) -> None:
    api.patch(f"/instances/{instance.pk}", {"name": "renamed"})
    api.post(f"/instances/{instance.pk}/topics", {"name": "orders"})
    actions = [event["action"] for event in api.get(f"/instances/{instance.pk}/events").json()["items"]]
    assert actions == ["topic.created", "instance.renamed"]
