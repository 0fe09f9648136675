"""Acts of a real admin client on an instance, from the broker's topic into the tenant's audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from django.core.cache import cache
from structlog.testing import capture_logs

from brokers.auditing import reader
from brokers.contract.audit import AUDIT_TOPIC
from brokers.dataplane import admin_client
from brokers.models import AuditOffset, Cluster
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, make_member
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.fleet import make_fleet, make_running, place
from tests.testkit.users import alter_users, user_addition
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db

PASSWORD, NEW_PASSWORD = "owner-Passw0rd", "alices-Passw0rd"
# Positions in a batch, in bytes.
LENGTH_AT, LENGTH_END, RECORDS_AT = 8, 12, 61
# Enough that the partition of the damaged batch gets one, too.
AUDIT_EVENTS = 5
_numbers = count()


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("audit")) as running:
        yield running
    admin_client.links().close()


@pytest.fixture
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Cluster:
    """Returns the row of the cluster that has the running broker."""
    cache.clear()
    fleet = make_fleet(tmp_path, brokers=1)
    Path(fleet.control_secret_file).write_text(engines.secret)
    settings = engines.brokers[0].settings
    fleet.brokers.update(internal_port=settings.internal_port, admin_port=settings.admin_port)
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    return fleet


@pytest.fixture
def owner(db: None) -> Member:
    return make_member()


@pytest.fixture
def instance(engines: EngineCluster, cluster: Cluster, owner: Member) -> TestInstance:
    """Returns a new instance with a superuser for each test: the broker's log outlives a test, rows do not."""
    return opened(engines, cluster, owner)


def opened(engines: EngineCluster, cluster: Cluster, member: Member) -> TestInstance:
    instance_id = f"ins-audit{next(_numbers):03}"
    made = engines.create_instance(instance_id, security="sasl_plaintext")
    alter_users(engines, made, user_addition("owner", PASSWORD, instance_id=instance_id, superuser=1))
    place(make_running(member.tenant, id=instance_id), cluster)
    return made


def conf(instance: TestInstance, name: str = "owner", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": instance.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
        "client.id": "terraform",
    }


def admin_of(instance: TestInstance) -> AdminClient:
    return AdminClient(conf(instance))


def create(instance: TestInstance, *names: str, partitions: int = 1) -> None:
    admin = admin_of(instance)  # kept while its calls are under way
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(30)


def rows(owner: Member, query: str = "") -> list[dict[str, Any]]:
    """Returns the tenant's audit log, oldest first."""
    response = Api.of(owner).get(f"/audit?actor_kind=client&page_size=200{query}")
    assert response.status_code == 200, response.content
    return list(reversed(response.json()["items"]))


def administer_everything(instance: TestInstance) -> None:
    admin = admin_of(instance)
    create(instance, "orders", partitions=3)
    admin.create_partitions([NewPartitions("orders", 5)])["orders"].result(30)
    setting = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[setting])
    admin.incremental_alter_configs([resource])[resource].result(30)
    producer = Producer(conf(instance))
    producer.produce("orders", b"x", partition=0)
    assert producer.flush(30) == 0
    for future in admin.delete_records([TopicPartition("orders", 0, 1)]).values():
        future.result(30)
    offsets = ConsumerGroupTopicPartitions("etl", [TopicPartition("orders", 0, 1)])
    admin.alter_consumer_group_offsets([offsets])["etl"].result(30)
    admin.delete_consumer_groups(["etl"])["etl"].result(30)
    alice = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096), NEW_PASSWORD.encode()
    )
    admin.alter_user_scram_credentials([alice])["alice"].result(30)
    rule = ("orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    for future in admin.create_acls([AclBinding(ResourceType.TOPIC, *rule)]).values():
        future.result(30)
    for future in admin.delete_acls([AclBindingFilter(ResourceType.TOPIC, *rule)]).values():
        future.result(30)
    admin.delete_topics(["orders"])["orders"].result(30)


def test_each_kind_of_change_by_an_admin_client_is_in_the_tenants_log(
    instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    administer_everything(instance)
    reader.read_all_clusters()
    result = rows(owner)
    assert [(row["action"], row["target"]["id"]) for row in result] == [
        ("topic.created", f"{instance.id}/orders"),
        ("topic.changed", f"{instance.id}/orders"),
        ("topic.changed", f"{instance.id}/orders"),
        ("topic.records_deleted", f"{instance.id}/orders"),
        ("group.offsets_committed", f"{instance.id}/etl"),
        ("group.deleted", f"{instance.id}/etl"),
        ("user.created", f"{instance.id}/users/alice"),
        ("acl.created", f"{instance.id}/acls/topic/orders"),
        ("acl.deleted", f"{instance.id}/acls/topic/orders"),
        ("topic.deleted", f"{instance.id}/orders"),
    ]
    for row in result:
        assert row["actor"] == {"kind": "client", "id": f"{instance.id}/users/owner", "name": "owner"}
        assert row["ip"] == "127.0.0.1"
        assert row["context"] == {"broker": 1, "client_id": "terraform", "route": "default"}
    assert (result[1]["before"], result[1]["after"]) == ({"partitions": 3}, {"partitions": 5})
    assert (result[2]["before"], result[2]["after"]) == ({"config": {}}, {"config": {"retention.ms": "60000"}})
    assert result[-1]["before"]["partitions"] == 5
    failures = json.dumps(result)
    assert PASSWORD not in failures and NEW_PASSWORD not in failures
    assert [row["action"] for row in rows(owner, "&ip=10.0.0.9")] == []
    assert len(rows(owner, f"&target_id={instance.id}/etl")) == 2


def test_nothing_of_a_password_is_in_the_brokers_files(
    engines: EngineCluster, instance: TestInstance, owner: Member
) -> None:
    administer_everything(instance)
    with pytest.raises(KafkaException):
        AdminClient(conf(instance, "nobody", "a-wrong-Passw0rd")).list_topics(timeout=2)
    (data,) = engines.brokers[0].settings.data_dirs
    logs = b"".join(file.read_bytes() for file in Path(data).glob(f"{AUDIT_TOPIC}-*/*.log"))
    assert instance.id.encode() in logs
    for word in (PASSWORD, NEW_PASSWORD, "a-wrong-Passw0rd", "salt", "stored_key"):
        assert word.encode() not in logs


def test_events_of_a_time_without_a_reader_are_read_once(
    instance: TestInstance, owner: Member, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(instance, "first")
    reader.read_all_clusters()
    create(instance, *(f"topic-{number}" for number in range(20)))
    with monkeypatch.context() as broken, capture_logs() as written:
        broken.setattr(AuditOffset, "save", _dies)
        assert reader.read_all_clusters() == 0
    failed = [line["cluster_id"] for line in written if line["event"] == "audit.cluster_failed"]
    assert failed == [cluster.pk]
    assert len(rows(owner)) == 1, "rows and offset are one transaction"
    assert reader.read_all_clusters() > 0
    assert reader.read_all_clusters() == 0
    names = [row["target"]["id"].partition("/")[2] for row in rows(owner)]
    assert sorted(names) == sorted(["first", *(f"topic-{number}" for number in range(20))])


def _dies(*_: object, **__: object) -> None:
    raise RuntimeError("the process ends here")


def test_events_of_answered_requests_survive_a_kill_of_the_broker(
    engines: EngineCluster, instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    names = [f"topic-{number}" for number in range(5)]
    create(instance, *names)
    broker = engines.brokers[0]
    broker.kill()
    assert reader.read_all_clusters() == 0
    broker.start()
    broker.wait_until_ready()

    def recorded_names() -> list[str]:
        reader.read_all_clusters()
        return sorted(row["target"]["id"].partition("/")[2] for row in rows(owner))

    eventually(lambda: recorded_names() == names, within_s=30)


def test_another_tenant_sees_nothing_of_it(
    engines: EngineCluster, instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    stranger = make_member()
    theirs = opened(engines, cluster, stranger)
    create(instance, "mine")
    create(theirs, "theirs")
    reader.read_all_clusters()
    assert [row["target"]["id"] for row in rows(owner)] == [f"{instance.id}/mine"]
    assert [row["target"]["id"] for row in rows(stranger)] == [f"{theirs.id}/theirs"]
    assert not rows(stranger, f"&target_id={instance.id}/mine")


def test_failed_sign_ins_are_one_row_with_their_number(instance: TestInstance, owner: Member, cluster: Cluster) -> None:
    for name in ("owner", "a-name-like-a-password"):
        with pytest.raises(KafkaException):
            AdminClient(conf(instance, name, "wrong")).list_topics(timeout=2)

    def failures() -> list[dict[str, Any]]:
        reader.read_all_clusters()
        return [row for row in rows(owner) if row["action"] == "client.sign_in_failed"]

    eventually(lambda: len(failures()) >= 2, within_s=15)
    known, unknown = sorted(failures()[:2], key=lambda row: row["actor"]["name"])
    assert (known["actor"]["name"], known["target"]["id"]) == ("owner", f"{instance.id}/users/owner")
    assert (unknown["actor"]["name"], unknown["target"]["id"]) == ("unknown user", instance.id)
    assert known["ip"] == unknown["ip"] == "127.0.0.1"
    assert known["after"] == {"mechanism": "PLAIN"}
    assert "a-name-like-a-password" not in json.dumps(rows(owner))


def test_an_act_of_the_console_has_one_row_and_not_two(instance: TestInstance, owner: Member, cluster: Cluster) -> None:
    made = Api.of(owner).post(
        f"/instances/{instance.id}/topics", {"name": "orders", "partitions": 1, "replication_factor": 1}
    )
    assert made.status_code == 201, made.content
    reader.read_all_clusters()
    assert AuditEntry.objects.filter(action="topic.created", target_id=f"{instance.id}/orders").count() == 1
    assert not rows(owner)


def test_a_log_that_lost_its_end_is_read_again_without_doubles(
    instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    create(instance, "orders")
    reader.read_all_clusters()
    AuditOffset.objects.update(next_offset=1_000_000)
    create(instance, "bills")
    reader.read_all_clusters()
    reader.read_all_clusters()
    names = [row["target"]["id"].partition("/")[2] for row in rows(owner)]
    assert names == ["orders", "bills"]


def test_an_event_of_an_instance_that_nobody_knows_holds_up_nobody(
    engines: EngineCluster, instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    stray = engines.create_instance(f"ins-stray{next(_numbers):03}")
    topic = NewTopic("nobodys", 1, 1)
    admin = AdminClient({"bootstrap.servers": stray.bootstrap})
    admin.create_topics([topic])["nobodys"].result(30)
    create(instance, "orders")
    reader.read_all_clusters()
    assert [row["target"]["id"] for row in rows(owner)] == [f"{instance.id}/orders"]
    assert not AuditEntry.objects.filter(target_id__contains="nobodys").exists()


def test_a_batch_that_cannot_be_read_holds_up_none_after_it(
    engines: EngineCluster, instance: TestInstance, owner: Member, cluster: Cluster
) -> None:
    create(instance, "first")
    reader.read_all_clusters()
    create(instance, "damaged")
    damage(engines, f"{instance.id}".encode(), b"damaged")
    with capture_logs() as written:
        reader.read_all_clusters()
    assert [line["event"] for line in written] == ["audit.unreadable"]
    for number in range(AUDIT_EVENTS):
        create(instance, f"topic-{number}")
    reader.read_all_clusters()
    names = sorted(row["target"]["id"].partition("/")[2] for row in rows(owner))
    assert names == sorted(["first", *(f"topic-{number}" for number in range(AUDIT_EVENTS))])
    (row,) = AuditOffset.objects.filter(cluster=cluster)
    assert reader.read_all_clusters() == 0
    assert row.next_offset == AuditOffset.objects.get(pk=row.pk).next_offset


def damage(engines: EngineCluster, *words: bytes) -> None:
    """Overwrites the records of the batch with these words in the log of the audit topic."""
    (folder,) = engines.brokers[0].settings.data_dirs
    for file in sorted(Path(folder).glob(f"{AUDIT_TOPIC}-*/*.log")):
        data = file.read_bytes()
        at = 0
        while at + RECORDS_AT <= len(data):
            end = at + LENGTH_END + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_END])
            if all(word in data[at:end] for word in words):
                with file.open("r+b") as opened_file:
                    opened_file.seek(at + RECORDS_AT)
                    opened_file.write(b"\xff" * (end - at - RECORDS_AT))
                return
            at = end
    raise AssertionError("no batch has these words")
