"""The admin clients for users and access rules, with real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.core.cache import cache

from brokers.dataplane import admin_client
from brokers.dataplane.acls import KafkaAclAdminClient
from brokers.dataplane.users import KafkaUserAdminClient
from brokers.models import Cluster
from instances import services
from instances.acls import selectors as acl_selectors
from instances.acls.interfaces import AccessQuestion, AclFilter
from instances.models import Instance
from instances.users import selectors as user_selectors
from instances.users.interfaces import NEVER, NewSecret, Presence, UserChange
from tenants.actors import system_actor
from tenants.errors import Conflict, DomainError, NotFound
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fake_users import rule
from tests.testkit.fleet import make_fleet, make_running, place
from tests.testkit.waiting import eventually

INSTANCE_ID = "ins-users001"
# Its clients sign in.
SIGNED_ID = "ins-users002"
FUTURE_MS = 4_000_000_000_000

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("users"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        running.create_instance(SIGNED_ID, security="sasl_plaintext")
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Cluster:
    """Returns the row of the cluster of the running brokers."""
    cache.clear()
    fleet = make_fleet(tmp_path, brokers=2)
    Path(fleet.control_secret_file).write_text(engines.secret)
    for broker in engines.brokers:
        settings = broker.settings
        fleet.brokers.filter(number=settings.broker_id).update(
            internal_port=settings.internal_port, admin_port=settings.admin_port
        )
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    return fleet


def placed(cluster: Cluster, instance_id: str) -> Instance:
    running = make_running(make_tenant(), id=instance_id)
    place(running, cluster)
    return running


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    return placed(cluster, INSTANCE_ID)


def secret(name: str) -> NewSecret:
    return NewSecret(id=name, password="psu_" + name * 8)


def test_a_user_is_made_changed_rotated_and_deleted(instance: Instance) -> None:
    users, name = KafkaUserAdminClient(), "al/ice"
    making = UserChange(
        name=name, presence=Presence.FORBIDDEN, superuser=True, expires_at_ms=FUTURE_MS, added_secrets=(secret("one"),)
    )
    users.change(INSTANCE_ID, making, validate_only=True)
    with pytest.raises(NotFound):
        users.user(INSTANCE_ID, name)
    users.change(INSTANCE_ID, making, validate_only=False)
    made = users.user(INSTANCE_ID, name)
    assert (made.superuser, made.disabled, made.expires_at_ms, made.last_used_at_ms) == (True, False, FUTURE_MS, None)
    assert [(item.id, item.mechanisms) for item in made.secrets] == [("one", ("SCRAM-SHA-256", "SCRAM-SHA-512"))]
    with pytest.raises(Conflict):
        users.change(INSTANCE_ID, making, validate_only=False)
    users.change(INSTANCE_ID, UserChange(name=name, added_secrets=(secret("two"),)), validate_only=False)
    eventually(lambda: [item.id for item in users.user(INSTANCE_ID, name).secrets] == ["one", "two"])
    with pytest.raises(DomainError):  # a third
        users.change(INSTANCE_ID, UserChange(name=name, added_secrets=(secret("three"),)), validate_only=False)
    change = UserChange(name=name, disabled=True, superuser=False, expires_at_ms=NEVER, removed_secrets=("one",))
    users.change(INSTANCE_ID, change, validate_only=False)

    def is_changed() -> bool:
        shown = users.user(INSTANCE_ID, name)
        return (shown.disabled, shown.superuser, shown.expires_at_ms) == (True, False, None)

    eventually(is_changed)
    assert [item.id for item in users.user(INSTANCE_ID, name).secrets] == ["two"]
    assert [user.name for user in users.users(INSTANCE_ID, [name, "nobody"]).users] == [name]
    assert users.users(INSTANCE_ID, ["nobody"]).users == ()
    users.change(INSTANCE_ID, UserChange(name=name, is_deleted=True), validate_only=False)
    with pytest.raises(NotFound):
        users.change(INSTANCE_ID, UserChange(name=name, is_deleted=True), validate_only=False)
    eventually(lambda: users.users(INSTANCE_ID).users == ())


def test_rules_are_made_found_by_what_they_have_a_say_about_and_deleted(instance: Instance) -> None:
    acls = KafkaAclAdminClient()
    made = sorted([
        rule(), rule("User:bob", "write", permission="deny", host="10.0.0.1"),
        rule(resource_name="ord", pattern_type="prefixed"), rule(resource_type="group", resource_name="etl"),
        rule(resource_type="cluster", resource_name="kafka-cluster", operation="create"),
        rule(resource_type="transactional_id", resource_name="*", operation="write"),
    ])  # fmt: skip
    acls.create(INSTANCE_ID, made)
    eventually(lambda: sorted(acls.rules(INSTANCE_ID, AclFilter())) == made)
    matching = acls.rules(INSTANCE_ID, AclFilter(resource_type="topic", resource_name="orders", pattern_type="match"))
    assert sorted(matching) == sorted(item for item in made if item.resource_type == "topic")
    gone = acls.delete(INSTANCE_ID, [acl_selectors.exact_filter(rule()), AclFilter(principal="User:bob")])
    assert set(gone) == {rule(), rule("User:bob", "write", permission="deny", host="10.0.0.1")}
    assert set(acls.delete(INSTANCE_ID, [AclFilter()])) == set(made) - set(gone)
    eventually(lambda: acls.rules(INSTANCE_ID, AclFilter()) == [])


def test_brokers_report_the_written_rules_and_the_access_test_decides_by_them(instance: Instance) -> None:
    acting = system_actor("tests", instance.tenant)
    services.create_user(acting=acting, instance=instance, name="etl")
    services.create_acls(acting=acting, instance=instance, rules=[rule("User:etl", resource_name="clicks")])
    asked = AccessQuestion(
        principal="User:etl", host="*", operation="describe", resource_type="topic", resource_name="clicks"
    )
    eventually(lambda: acl_selectors.access_decision(instance, asked).reason == "allowed_by_rule")
    services.update_user(acting=acting, instance=instance, name="etl", superuser=True)
    eventually(lambda: acl_selectors.access_decision(instance, asked).reason == "superuser")
    services.delete_acls(acting=acting, instance=instance, rule_filter=AclFilter(principal="User:etl"))
    services.delete_user(acting=acting, instance=instance, name="etl")
    eventually(lambda: user_selectors.user_names(instance) == ())


def signs_in(servers: str, name: str, password: str) -> bool:
    """Tries to sign in once: after many failures brokers refuse without a check."""
    client = AdminClient({
        "bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": name, "sasl.password": password, "reconnect.backoff.ms": 60_000,
        "reconnect.backoff.max.ms": 60_000,
    })  # fmt: skip
    try:
        client.list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def test_a_password_of_the_control_plane_signs_in_until_it_is_removed(engines: EngineCluster, cluster: Cluster) -> None:
    instance = placed(cluster, SIGNED_ID)
    acting, servers = system_actor("tests", instance.tenant), engines.instances[SIGNED_ID].bootstrap
    _, first = services.create_user(acting=acting, instance=instance, name="etl", superuser=True)
    eventually(lambda: signs_in(servers, "etl", first.password))
    second = services.add_secret(acting=acting, instance=instance, name="etl")
    eventually(lambda: signs_in(servers, "etl", second.password))
    assert signs_in(servers, "etl", first.password)
    shown = user_selectors.user(instance, "etl")
    assert shown.last_used_at_ms is not None
    assert all(item.last_used_at_ms is not None for item in shown.secrets)
    services.remove_secret(acting=acting, instance=instance, name="etl", secret_id=first.id)
    eventually(lambda: not signs_in(servers, "etl", first.password))
    assert signs_in(servers, "etl", second.password)
    services.update_user(acting=acting, instance=instance, name="etl", disabled=True)
    eventually(lambda: not signs_in(servers, "etl", second.password))
    services.update_user(acting=acting, instance=instance, name="etl", disabled=False)
    eventually(lambda: signs_in(servers, "etl", second.password))
    services.delete_user(acting=acting, instance=instance, name="etl")
    eventually(lambda: not signs_in(servers, "etl", second.password))
    assert user_selectors.user_page(instance).rows == ()
    services.restore_user(acting=acting, instance=instance, name="etl")
    eventually(lambda: signs_in(servers, "etl", second.password))
    assert user_selectors.user(instance, "etl").superuser
