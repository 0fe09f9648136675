"""Alert rules over REST: isolated by tenant, limited, validated, and restarted by a change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances.models import Instance
from notifications.alerts import firings, services
from notifications.alerts.firings import Fired
from notifications.models import AlertFiring, AlertRule
from tenants import access
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_instance(owner.tenant, name="orders")


def rule_of(owner: Member, instance: Instance, **given: Any) -> AlertRule:
    """Creates a rule, by default about storage."""
    wanted = {"name": "full soon", "kind": "storage_used", "threshold": 80, **given}
    return services.create_rule(acting=member_actor(owner), instance=instance, **wanted)


def fire(rule: AlertRule) -> AlertFiring:
    AlertRule.objects.filter(pk=rule.pk).update(state="firing", value=85, is_unknown=False)
    (firing,) = firings.begin([Fired(rule, 85, timezone.now() - timedelta(minutes=5))], timezone.now())
    return firing


def lag(instance: Instance, **more: Any) -> dict[str, Any]:
    return {
        "name": "billing is late", "instance_id": instance.pk, "kind": "consumer_lag", "threshold": 1000,
        "group_id": "billing", **more,
    }  # fmt: skip


class TestEndpointsOfAlertRules(EndpointCases):
    cases = (
        Case("GET", "/alert-rules", Scope.USAGE_READ),
        Case("GET", "/alert-rules/{rule}", Scope.USAGE_READ),
        Case("PATCH", "/alert-rules/{rule}", Scope.INSTANCES_WRITE, body={"enabled": False}),
        Case("DELETE", "/alert-rules/{rule}", Scope.INSTANCES_WRITE, status=204),
        Case("GET", "/alert-rules/{rule}/firings", Scope.USAGE_READ),
        Case("GET", "/alert-firings", Scope.USAGE_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        rule = rule_of(owner, make_instance(owner.tenant))
        fire(rule)
        return {"rule": rule.pk}


class TestCreationOfAlertRules(EndpointCases):
    """Cases of creation: the body names the instance, and another tenant's instance is not found."""

    cases = (
        Case(
            "POST", "/alert-rules", Scope.INSTANCES_WRITE, status=201,
            body={"name": "slow", "instance_id": "ins-alerted0", "kind": "throttled_share", "threshold": 20},
        ),
    )  # fmt: skip

    def places(self, owner: Member) -> dict[str, str]:
        make_instance(owner.tenant, id="ins-alerted0")
        return {}


def test_a_rule_is_created_read_paused_and_resumed(owner: Member, instance: Instance) -> None:
    api = Api.of(owner)
    made = api.post("/alert-rules", lag(instance, topic="orders.created", for_minutes=10))
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["state"], body["is_unknown"], body["value"], body["enabled"]) == ("ok", True, None, True)
    assert (body["group_id"], body["topic"], body["window_minutes"]) == ("billing", "orders.created", None)

    at = f"/alert-rules/{body['id']}"
    assert api.patch(at, {"enabled": False}).json()["enabled"] is False
    assert api.patch(at, {"enabled": True, "threshold": 5}).json()["threshold"] == 5
    assert api.delete(at).status_code == 204
    assert_problem(api.get(at), 404, "not_found")


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"threshold": 101}, "/threshold"),
        ({"threshold": 0}, "/threshold"),
        ({"threshold": 10**30}, "/threshold"),
        ({"threshold": "80"}, "/threshold"),
        ({"for_minutes": 0}, "/for_minutes"),
        ({"for_minutes": 1441}, "/for_minutes"),
        ({"group_id": "billing"}, "/group_id"),
        ({"topic": "orders"}, "/topic"),
        ({"window_minutes": 15}, "/window_minutes"),
        ({"name": ""}, "/name"),
        ({"name": "x" * 65}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"kind": "cluster_under_replicated"}, "/kind"),
        ({"kind": "consumer_lag"}, "/group_id"),
        ({"kind": "consumer_lag", "group_id": "g", "topic": "no topic"}, "/topic"),
        ({"kind": "consumer_lag", "group_id": "g\n", "threshold": 5}, "/group_id"),
        ({"kind": "throttled_share", "window_minutes": 61}, "/window_minutes"),
        ({"kind": "brokers_silent", "threshold": 1_000}, "/threshold"),
    ],
)
def test_an_invalid_rule_is_refused_with_a_pointer_to_the_field(
    owner: Member, instance: Instance, changed: dict[str, Any], pointer: str
) -> None:
    body = {"name": "a", "instance_id": instance.pk, "kind": "storage_used", "threshold": 80} | changed
    problem = assert_problem(Api.of(owner).post("/alert-rules", body), 400, "invalid_request")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert not AlertRule.objects.exists()


def test_another_tenants_instance_rule_and_firings_are_not_found(owner: Member, instance: Instance) -> None:
    rule = rule_of(owner, instance)
    fire(rule)
    stranger = Api.of(make_member())
    assert_problem(stranger.post("/alert-rules", lag(instance)), 404, "not_found")
    for answer in (
        stranger.get(f"/alert-rules/{rule.pk}"), stranger.patch(f"/alert-rules/{rule.pk}", {"enabled": False}),
        stranger.delete(f"/alert-rules/{rule.pk}"), stranger.get(f"/alert-rules/{rule.pk}/firings"),
    ):  # fmt: skip
        assert_problem(answer, 404, "not_found")
    assert stranger.get("/alert-rules").json()["items"] == stranger.get("/alert-firings").json()["items"] == []


def test_a_rule_about_a_group_is_hidden_from_who_may_not_see_groups(owner: Member, instance: Instance) -> None:
    rule = rule_of(owner, instance, kind="consumer_lag", group_id="billing")
    fire(rule)
    for narrow in (
        Api.of(owner, [Scope.USAGE_READ, Scope.INSTANCES_WRITE]),
        Api.of(make_member(Role.FINANCE, owner.tenant), [Scope.USAGE_READ]),
    ):
        assert narrow.get("/alert-rules").json()["items"] == narrow.get("/alert-firings").json()["items"] == []
        assert_problem(narrow.get(f"/alert-rules/{rule.pk}"), 404, "not_found")
    narrow = Api.of(owner, [Scope.USAGE_READ, Scope.INSTANCES_WRITE])
    assert_problem(narrow.post("/alert-rules", lag(instance)), 403, "permission_denied")
    assert Scope.GROUPS_READ not in access.ROLE_SCOPES[Role.FINANCE]


def test_rules_per_tenant_are_limited_and_names_are_unique_in_a_tenant(
    owner: Member, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ALERT_RULES_PER_TENANT_MAX", 2)
    api = Api.of(owner)
    made = [api.post("/alert-rules", lag(instance, name=name)).status_code for name in ("a", "b")]
    assert made == [201, 201]
    assert_problem(api.post("/alert-rules", lag(instance, name="c")), 403, "quota_exceeded")
    other = make_member()
    assert Api.of(other).post("/alert-rules", lag(make_instance(other.tenant), name="a")).status_code == 201
    ids = [item["id"] for item in api.get("/alert-rules").json()["items"]]
    assert_problem(api.patch(f"/alert-rules/{ids[0]}", {"name": "b"}), 409, "name_taken")


def test_rules_and_firings_come_in_pages(owner: Member, instance: Instance) -> None:
    rules = [rule_of(owner, instance, name=f"rule {number}") for number in range(3)]
    fire(rules[0])
    api = Api.of(owner)
    first = api.get("/alert-rules?page_size=2").json()
    second = api.get(f"/alert-rules?page_size=2&page_token={first['next_page_token']}").json()
    names = [item["name"] for item in first["items"] + second["items"]]
    assert names == ["rule 0", "rule 1", "rule 2"] and second["next_page_token"] is None
    assert [item["rule_id"] for item in api.get(f"/alert-rules/{rules[0].pk}/firings").json()["items"]] == [rules[0].pk]


@pytest.mark.parametrize(
    ("change", "ended_by"), [({"enabled": False}, "paused"), ({"threshold": 90}, "changed"), (None, "deleted")]
)
def test_a_firing_alert_is_resolved_when_its_rule_is_paused_changed_or_deleted(
    owner: Member, instance: Instance, change: dict[str, Any] | None, ended_by: str
) -> None:
    rule = rule_of(owner, instance)
    fire(rule)
    api = Api.of(owner)
    at = f"/alert-rules/{rule.pk}"
    if change is None:
        assert api.delete(at).status_code == 204
    else:
        assert api.patch(at, {"name": "another name"}).json()["state"] == "firing"
        changed = api.patch(at, change).json()
        assert (changed["state"], changed["is_unknown"], changed["value"]) == ("ok", True, None)
    (firing,) = api.get("/alert-firings").json()["items"]
    assert firing["ended_by"] == ended_by and firing["resolved_at"] is not None


def test_a_rule_of_an_older_version_is_not_changed(owner: Member, instance: Instance) -> None:
    rule = rule_of(owner, instance)
    api = Api.of(owner)
    tag = api.get(f"/alert-rules/{rule.pk}")["ETag"]
    assert api.patch(f"/alert-rules/{rule.pk}", {"threshold": 70}, If_Match=tag).status_code == 200
    assert_problem(api.patch(f"/alert-rules/{rule.pk}", {"threshold": 60}, If_Match=tag), 412, "precondition_failed")
