"""Closed instances: new ones are closed, older ones stay open and are marked, and a new user gets its
rights at once.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from instances import services
from instances.acls.interfaces import AclFilter
from instances.acls.limits import ACL_RULES_PER_INSTANCE_MAX
from instances.acls.presets import Preset
from instances.models import Instance
from tenants.actors import Actor, member_actor
from tenants.errors import OutcomeUnknown, PermissionDenied
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fake_users import FakeAcls, FakeUsers, rule
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

PRODUCE_CONSUME = {
    ("topic", "*", "read"), ("topic", "*", "write"), ("topic", "*", "create"), ("group", "*", "read"),
    ("transactional_id", "*", "write"),
}  # fmt: skip
OPEN = {"settings": {"allow_everyone_if_no_acl": True}}
CLOSED = {"settings": {"allow_everyone_if_no_acl": False}}


@pytest.fixture
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


@pytest.fixture
def open_instance(instance: Instance) -> Instance:
    instance.settings = {**instance.settings, **OPEN["settings"]}
    instance.save()
    return instance


@pytest.fixture
def acting(owner: Member) -> Actor:
    return member_actor(owner)


def rights(acls: FakeAcls, instance: Instance, principal: str) -> set[tuple[str, str, str]]:
    found = acls.rules(instance.pk, AclFilter(principal=principal, permission="allow", host="*"))
    return {(entry.resource_type, entry.resource_name, entry.operation) for entry in found}


# --- what is open -----------------------------------------------------------------------------------------------------


def test_an_instance_is_closed_unless_its_owner_opens_it(api: Api, owner: Member) -> None:
    assert api.post("/instances", {"name": "closed"}).status_code == 202
    assert api.post("/instances", {"name": "open", **OPEN}).status_code == 202
    shown = {instance["name"]: instance for instance in api.get("/instances").json()["items"]}
    assert shown["closed"]["settings"]["allow_everyone_if_no_acl"] is False
    assert shown["closed"]["warnings"] == []
    assert shown["open"]["settings"]["allow_everyone_if_no_acl"] is True
    assert [warning["code"] for warning in shown["open"]["warnings"]] == ["instance_open"]


def test_an_instance_from_before_the_setting_stays_open(api: Api, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(settings={"auto_create_topics": False})
    chosen = make_running(instance.tenant, name="chosen", settings={"allow_everyone_if_no_acl": False})
    migration = import_module("instances.migrations.0014_closed_by_default").Migration

    with connection.cursor() as cursor:
        cursor.execute(migration.operations[0].sql)

    shown = api.get(f"/instances/{instance.pk}").json()
    assert shown["settings"]["allow_everyone_if_no_acl"] is True
    assert shown["settings"]["auto_create_topics"] is False
    assert [warning["code"] for warning in shown["warnings"]] == ["instance_open"]
    assert api.get(f"/instances/{chosen.pk}").json()["settings"]["allow_everyone_if_no_acl"] is False


def test_opening_an_instance_is_answered_with_a_warning(api: Api, instance: Instance) -> None:
    answer = api.patch(f"/instances/{instance.pk}", OPEN)
    assert answer.status_code == 202
    assert [warning["code"] for warning in answer.json()["warnings"]] == ["instance_open"]
    answer = api.patch(f"/instances/{instance.pk}", CLOSED)
    assert (answer.status_code, answer.json()["warnings"]) == (202, [])


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("alter", "cluster_needs_rule"),
        ("alter_configs", "cluster_needs_rule"),
        ("cluster_action", "cluster_needs_rule"),
        ("create", "no_rules_allowed"),
        ("describe", "no_rules_allowed"),
        ("idempotent_write", "no_rules_allowed"),
    ],
)
def test_administering_an_open_instance_takes_a_rule(
    api: Api, open_instance: Instance, acls: FakeAcls, operation: str, reason: str
) -> None:
    question = f"principal=User:a&operation={operation}&resource_type=cluster&resource_name=kafka-cluster"
    shown = api.get(f"/instances/{open_instance.pk}/acls/test?{question}").json()
    assert (shown["allowed"], shown["reason"]) == (reason == "no_rules_allowed", reason)


# --- a user with rights -----------------------------------------------------------------------------------------------


def test_a_user_is_created_with_the_rights_to_produce_and_consume(
    api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    answer = api.post(f"/instances/{instance.pk}/users", {"name": "app", "rights": "produce_consume"})
    assert answer.status_code == 201
    assert rights(acls, instance, "User:app") == PRODUCE_CONSUME
    assert len(acls.rules_by_instance[instance.pk]) == len(PRODUCE_CONSUME)
    actions = set(AuditEntry.objects.filter(target_id__startswith=instance.pk).values_list("action", flat=True))
    assert actions >= {"user.created", "acl.created"}


@pytest.mark.parametrize("body", [{}, {"rights": "nothing"}])
def test_a_user_is_given_nothing_unless_asked(
    api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls, body: dict[str, str]
) -> None:
    assert api.post(f"/instances/{instance.pk}/users", {"name": "app", **body}).status_code == 201
    assert not acls.rules_by_instance.get(instance.pk)


def test_rights_that_do_not_exist_are_refused(api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls) -> None:
    assert_problem(
        api.post(f"/instances/{instance.pk}/users", {"name": "app", "rights": "admin"}), 400, "invalid_request"
    )
    assert not users.users_by_key and not acls.rules_by_instance


def test_a_dry_run_gives_nothing(api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls) -> None:
    wanted = {"name": "app", "rights": "produce_consume"}
    assert api.post(f"/instances/{instance.pk}/users?dry_run=true", wanted).status_code == 201
    assert not users.users_by_key and not acls.rules_by_instance


def test_a_user_that_exists_is_given_nothing(api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls) -> None:
    users.add(instance.pk, "app")
    answer = api.post(f"/instances/{instance.pk}/users", {"name": "app", "rights": "produce_consume"})
    assert answer.status_code == 409
    assert not acls.rules_by_instance and (instance.pk, "app") in users.users_by_key


def test_rules_on_every_topic_are_not_made_in_an_open_instance(
    api: Api, open_instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    """Such rules would close every topic to all users that work without rules."""
    wanted = {"name": "app", "rights": "produce_consume"}
    assert_problem(api.post(f"/instances/{open_instance.pk}/users", wanted), 409, "instance_open")
    assert not users.users_by_key and not acls.rules_by_instance


def test_without_room_for_the_rules_there_is_no_user(
    api: Api, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    acls.create(instance.pk, [rule(f"User:{number}") for number in range(ACL_RULES_PER_INSTANCE_MAX - 4)])
    wanted = {"name": "app", "rights": "produce_consume"}
    assert_problem(api.post(f"/instances/{instance.pk}/users", wanted), 403, "quota_exceeded")
    assert not users.users_by_key


def test_a_user_whose_rules_are_in_doubt_goes_again(
    acting: Actor, instance: Instance, users: FakeUsers, acls: FakeAcls
) -> None:
    acls.is_lost = True
    with pytest.raises(OutcomeUnknown):
        services.create_user(acting=acting, instance=instance, name="app", rights=Preset.PRODUCE_CONSUME)
    assert not users.users_by_key
    assert (AuditEntry.objects.get(action="acl.created").after or {})["outcome"] == "unknown"


def test_a_member_who_may_not_make_rules_gives_no_rights(instance: Instance, users: FakeUsers, acls: FakeAcls) -> None:
    member = make_member(role="viewer", tenant=instance.tenant)
    with pytest.raises(PermissionDenied):
        services.create_user(acting=member_actor(member), instance=instance, name="app", rights=Preset.PRODUCE_CONSUME)
    assert not users.users_by_key and not acls.rules_by_instance


# --- closing ----------------------------------------------------------------------------------------------------------


def closed(acting: Actor, instance: Instance) -> set[tuple[str, str, str]]:
    """Closes the instance; returns the resource types of the rules that were created for everybody."""
    _operation, made = services.close_instance(acting=acting, instance=instance)
    instance.refresh_from_db()
    assert instance.settings_in_force["allow_everyone_if_no_acl"] is False
    assert {entry.principal for entry in made} <= {"User:*"}
    return {(entry.resource_type, entry.resource_name, entry.operation) for entry in made}


def test_clients_of_an_open_instance_go_on_when_it_is_closed(
    acting: Actor, open_instance: Instance, acls: FakeAcls
) -> None:
    assert closed(acting, open_instance) == PRODUCE_CONSUME == rights(acls, open_instance, "User:*")
    assert closed(acting, open_instance) == set()


@pytest.mark.parametrize("kind", ["topic", "group", "transactional_id"])
def test_closing_opens_nothing_that_rules_have_closed(
    acting: Actor, open_instance: Instance, acls: FakeAcls, kind: str
) -> None:
    """A rule for everybody on every topic would open the topic of a single user to all."""
    acls.create(open_instance.pk, [rule(resource_type=kind)])
    assert closed(acting, open_instance) == {right for right in PRODUCE_CONSUME if right[0] != kind}


def test_a_member_who_may_not_change_instances_closes_none(open_instance: Instance, acls: FakeAcls) -> None:
    viewer = make_member(role="viewer", tenant=open_instance.tenant)
    with pytest.raises(PermissionDenied):
        services.close_instance(acting=member_actor(viewer), instance=open_instance)
    assert not acls.rules_by_instance


def test_an_instance_stays_open_where_the_rules_are_in_doubt(
    acting: Actor, open_instance: Instance, acls: FakeAcls
) -> None:
    acls.is_lost = True
    with pytest.raises(OutcomeUnknown):
        services.close_instance(acting=acting, instance=open_instance)
    open_instance.refresh_from_db()
    assert open_instance.settings_in_force["allow_everyone_if_no_acl"] is True
