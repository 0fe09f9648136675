"""Access rules over REST: created one by one, deleted by filter, and tested for a permission."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from instances import services
from instances.acls.interfaces import AclFilter
from instances.models import Instance
from tenants.actors import member_actor
from tenants.errors import NotFound, OutcomeUnknown, QuotaExceeded
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

READING = {"principal": "User:alice", "resource_type": "topic", "resource_name": "orders", "operation": "read"}


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture()
def at(instance: Instance) -> str:
    return f"/instances/{instance.pk}/acls"


def asked(api: Api, at: str, **question: str) -> dict[str, Any]:
    usual = {"principal": "User:alice", "operation": "read", "resource_type": "topic", "resource_name": "orders"}
    answer = api.get(f"{at}/test?{urlencode({**usual, **question})}")
    assert answer.status_code == 200, answer.content
    result: dict[str, Any] = answer.json()
    return result


def test_a_rule_is_literal_from_any_host_and_allows_by_default(
    api: Api, at: str, instance: Instance, acls: FakeAcls
) -> None:
    answer = api.post(at, READING)
    assert answer.status_code == 201
    assert answer.json() == {**READING, "host": "*", "pattern_type": "literal", "permission": "allow"}
    assert acls.rules_by_instance[instance.pk] == {rule()}
    entry = AuditEntry.objects.get(action="acl.created")
    assert entry.target_id == f"{instance.pk}/acls/topic/orders"
    assert (entry.after or {})["rules"] == [answer.json()]


def test_the_same_rule_again_is_no_change(api: Api, at: str) -> None:
    for _ in range(2):
        assert api.post(at, READING).status_code == 201
    assert AuditEntry.objects.filter(action="acl.created").count() == 1


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"principal": "alice"}, "/principal"),
        ({"host": "10.0.0.0/8"}, "/host"),
        ({"operation": "cluster_action"}, "/operation"),
        ({"operation": "READ"}, "/operation"),
        ({"resource_type": "user"}, "/resource_type"),
        ({"resource_type": "cluster", "operation": "alter"}, "/resource_name"),
        ({"pattern_type": "match"}, "/pattern_type"),
        ({"resource_name": ""}, "/resource_name"),
        ({"resource_name": "a\nb"}, "/resource_name"),
    ],
)
def test_a_rule_that_would_decide_nothing_is_refused(
    api: Api, at: str, acls: FakeAcls, wrong: dict[str, str], pointer: str
) -> None:
    problem = assert_problem(api.post(at, {**READING, **wrong}), 400, "invalid_request")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert not acls.rules_by_instance


def test_an_address_is_written_as_brokers_compare_it(api: Api, at: str, instance: Instance, acls: FakeAcls) -> None:
    assert api.post(at, {**READING, "host": "::ffff:10.0.0.1"}).status_code == 201
    assert acls.rules_by_instance[instance.pk] == {rule(host="10.0.0.1")}


def test_rules_are_filtered_and_what_has_a_say_about_a_resource_is_found(
    api: Api, at: str, instance: Instance, acls: FakeAcls
) -> None:
    acls.create(instance.pk, [
        rule(), rule("User:bob"), rule(resource_name="*"), rule(resource_name="ord", pattern_type="prefixed"),
        rule(resource_type="group", resource_name="orders"),
    ])  # fmt: skip
    assert len(api.get(at).json()["items"]) == 5
    assert len(api.get(f"{at}?principal=User:alice").json()["items"]) == 4
    assert len(api.get(f"{at}?resource_type=topic&resource_name=orders").json()["items"]) == 2
    matching = api.get(f"{at}?resource_type=topic&resource_name=orders&pattern_type=match").json()["items"]
    assert len(matching) == 4
    assert_problem(api.get(f"{at}?pattern_type=match"), 400)
    page = api.get(f"{at}?page_size=3").json()
    rest = api.get(f"{at}?page_size=3&page_token={page['next_page_token']}").json()
    assert len(page["items"]) + len(rest["items"]) == 5


def test_a_deletion_takes_what_its_query_means_and_nothing_without_one(
    api: Api, at: str, instance: Instance, acls: FakeAcls
) -> None:
    acls.create(instance.pk, [rule(), rule(operation="write"), rule("User:bob")])
    assert_problem(api.delete(at), 400, "empty_filter")
    assert_problem(api.delete(f"{at}?pattern_type=match&resource_name=orders"), 400)
    shown = api.delete(f"{at}?principal=User:alice&operation=read").json()
    assert shown == {"deleted": [{**READING, "host": "*", "pattern_type": "literal", "permission": "allow"}]}
    assert api.delete(f"{at}?principal=User:alice&dry_run=true").status_code == 200
    assert acls.rules_by_instance[instance.pk] == {rule(operation="write"), rule("User:bob")}
    assert_problem(api.delete(f"{at}?principal=User:carol"), 404)


def test_a_deletion_is_taken_back_by_its_row(instance: Instance, owner: Member, acls: FakeAcls) -> None:
    acting = member_actor(owner)
    before = {rule(), rule("User:bob", host="10.0.0.1", permission="deny")}
    acls.create(instance.pk, sorted(before))
    deleted, entry = services.delete_acls(
        acting=acting, instance=instance, rule_filter=AclFilter(resource_name="orders")
    )
    assert set(deleted) == before
    assert not acls.rules_by_instance[instance.pk]
    services.restore_acls(acting=acting, instance=instance, entry_id=entry.pk)
    assert acls.rules_by_instance[instance.pk] == before


def test_a_rule_with_a_zero_byte_comes_back_with_the_same_name(
    instance: Instance, owner: Member, acls: FakeAcls
) -> None:
    acting = member_actor(owner)
    odd = rule("User:a\x00b", resource_name="orders\x00\ufffd")
    acls.create(instance.pk, [odd])
    _, entry = services.delete_acls(acting=acting, instance=instance, rule_filter=AclFilter())
    entry.refresh_from_db()
    assert entry.before["rules"][0]["principal"] == "User:a\ufffdb"
    services.restore_acls(acting=acting, instance=instance, entry_id=entry.pk)
    assert acls.rules_by_instance[instance.pk] == {odd}


def test_another_instances_deletion_is_not_taken_back_here(owner: Member, instance: Instance, acls: FakeAcls) -> None:
    acting, other = member_actor(owner), make_running(owner.tenant)
    acls.create(other.pk, [rule()])
    _, entry = services.delete_acls(acting=acting, instance=other, rule_filter=AclFilter(principal="User:alice"))
    with pytest.raises(NotFound):
        services.restore_acls(acting=acting, instance=instance, entry_id=entry.pk)
    stranger = make_member()
    foreign = make_running(stranger.tenant)
    with pytest.raises(NotFound):
        services.restore_acls(acting=member_actor(stranger), instance=foreign, entry_id=entry.pk)


def test_rules_per_instance_are_limited(
    instance: Instance, owner: Member, acls: FakeAcls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instances.services.acls.ACL_RULES_PER_INSTANCE_MAX", 2)
    acting = member_actor(owner)
    services.create_acls(acting=acting, instance=instance, rules=[rule(), rule("User:bob")])
    services.create_acls(acting=acting, instance=instance, rules=[rule()])  # it is there
    with pytest.raises(QuotaExceeded):
        services.create_acls(acting=acting, instance=instance, rules=[rule("User:carol")])


def test_a_deletion_that_nobody_answered_is_kept_in_the_ledger(
    instance: Instance, owner: Member, acls: FakeAcls
) -> None:
    acls.create(instance.pk, [rule()])
    acls.is_lost = True
    with pytest.raises(OutcomeUnknown):
        services.delete_acls(acting=member_actor(owner), instance=instance, rule_filter=AclFilter())
    assert (AuditEntry.objects.get(action="acl.deleted").after or {})["outcome"] == "unknown"


# --- may … do …? ------------------------------------------------------------------------------------------------------


def test_the_rule_that_decides_is_named(api: Api, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.create(instance.pk, [rule()])
    shown = asked(api, at)
    assert (shown["allowed"], shown["reason"]) == (True, "allowed_by_rule")
    assert shown["rule"]["principal"] == "User:alice"
    acls.create(instance.pk, [rule("User:*", "all", resource_name="ord", pattern_type="prefixed", permission="deny")])
    shown = asked(api, at)
    assert (shown["allowed"], shown["reason"], shown["rule"]["resource_name"]) == (False, "denied_by_rule", "ord")


def test_full_access_is_asked_nothing(api: Api, at: str, instance: Instance, acls: FakeAcls, users: FakeUsers) -> None:
    acls.create(instance.pk, [rule("User:*", "all", permission="deny")])
    users.add(instance.pk, "alice", superuser=True)
    assert asked(api, at) == {"allowed": True, "reason": "superuser", "rule": None}
    assert asked(api, at, principal="User:bob")["reason"] == "denied_by_rule"


def test_without_any_rule_the_instances_setting_decides(api: Api, at: str, instance: Instance) -> None:
    for is_open, reason in ((False, "no_rules_denied"), (True, "no_rules_allowed")):
        answer = api.patch(f"/instances/{instance.pk}", {"settings": {"allow_everyone_if_no_acl": is_open}})
        assert answer.json()["settings"]["allow_everyone_if_no_acl"] is is_open
        assert asked(api, at) == {"allowed": is_open, "reason": reason, "rule": None}


@pytest.mark.parametrize(
    ("question", "parameter"),
    [({"host": "10.0.0.0/8"}, "host"), ({"resource_type": "group", "operation": "write"}, "operation")],
)
def test_a_question_that_kafka_never_asks_is_refused(
    api: Api, at: str, question: dict[str, str], parameter: str
) -> None:
    usual = {"principal": "User:alice", "operation": "read", "resource_type": "topic", "resource_name": "orders"}
    problem = assert_problem(api.get(f"{at}/test?{urlencode({**usual, **question})}"), 400, "invalid_request")
    assert problem["errors"][0]["parameter"] == parameter


def test_a_host_is_asked_for_as_brokers_know_it(api: Api, at: str, instance: Instance, acls: FakeAcls) -> None:
    acls.create(instance.pk, [rule(host="10.0.0.1")])
    assert asked(api, at, host="::ffff:10.0.0.1")["allowed"]
    assert not asked(api, at, host="10.0.0.2")["allowed"]
    assert not asked(api, at)["allowed"]
