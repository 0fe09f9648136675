"""A real broker process that is removed as lost, and its state when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from django.db import transaction
from django.utils import timezone

from brokers.choices import RebalanceState
from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.dataplane import admin_client
from brokers.dataplane.cluster import ClusterAdminClient
from brokers.dataplane.topics import KafkaTopicAdminClient
from brokers.limits import BROKER_LOST_AFTER_S
from brokers.models import AuditOffset, Broker, Cluster, Rebalance
from brokers.operations import job_runner
from brokers.placement.port_leases import lease
from brokers.rebalancing import interfaces, services
from instances import interfaces as instances_interfaces
from tenants.actors import Actor
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fake_cluster import confirm_generations
from tests.testkit.fleet import make_fleet, make_running, place, plugged
from tests.testkit.waiting import eventually

INSTANCE_ID = "ins-lostlost"
RECORDS = 20

pytestmark = pytest.mark.django_db


@pytest.fixture()
def engines(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path / "engines", size=3, session_timeout_ms=2_000) as running:
        running.create_instance(INSTANCE_ID)
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Iterator[Cluster]:
    """Returns the row of the cluster of the running brokers, whose host has not reported for a long time."""
    fleet = make_fleet(tmp_path, brokers=3)
    Path(fleet.control_secret_file).write_text(engines.secret)
    for broker in engines.brokers:
        settings = broker.settings
        fleet.brokers.filter(number=settings.broker_id).update(
            internal_port=settings.internal_port, admin_port=settings.admin_port
        )
    host = fleet.brokers.all()[0].host
    host.internal_host, host.agent_seen_at = "127.0.0.1", timezone.now() - timedelta(seconds=2 * BROKER_LOST_AFTER_S)
    host.save()
    with (
        plugged(instances_interfaces.reconcile, lambda _id: None),
        plugged(interfaces.usage_begins_anew, lambda *_: None),
    ):
        yield fleet


@pytest.fixture()
def topics(engines: EngineCluster, cluster: Cluster) -> dict[str, str]:
    """Creates full topics, `solo` with one replica and `pair` with two; returns internal names by name."""
    made = make_running(make_tenant(), id=INSTANCE_ID)
    place(made, cluster)
    with transaction.atomic():
        lease(made, Broker.objects.filter(cluster=cluster).select_related("host"))
    for name, factor in (("solo", 1), ("pair", 2)):
        KafkaTopicAdminClient().create_topic(
            INSTANCE_ID, name, partitions=3, replication_factor=factor, config={}, validate_only=False
        )
        filled(engines, name)
    return {name: f"{INSTANCE_ID}.{name}" for name in ("solo", "pair")}


def filled(engines: EngineCluster, name: str) -> None:
    producer = Producer({"bootstrap.servers": engines.instances[INSTANCE_ID].bootstrap, "acks": "all"})
    for number in range(3 * RECORDS):
        producer.produce(name, b"x", partition=number % 3)
    assert producer.flush(60) == 0


def ends(engines: EngineCluster, name: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": engines.instances[INSTANCE_ID].bootstrap, "group.id": "looks"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(name, index), 30, cached=False)[1] for index in range(3)]
    finally:
        consumer.close()


def test_a_broker_that_never_comes_back_is_removed_and_serves_nothing_when_it_does(
    engines: EngineCluster, cluster: Cluster, topics: dict[str, str], acting: Actor
) -> None:
    looks = ClusterAdminClient(cluster)
    held = [
        index for (topic, index), partition in looks.view([topics["solo"]]).partitions.items() if partition.leader == 3
    ]
    assert len(held) == 1
    own = looks.view([AUDIT_TOPIC]).partitions
    for _, index in own:
        AuditOffset.objects.create(cluster=cluster, partition=index, next_offset=7)
    engines.brokers[2].kill()
    eventually(
        lambda: looks.view([topics["solo"]]).partitions[topics["solo"], held[0]].leader == -1,
        within_s=60,
        what="the others to miss it",
    )

    row = services.plan_loss(acting=acting, broker=Broker.objects.get(cluster=cluster, number=3))
    assert {(partition["topic"], *partition["partitions"]) for partition in row.lost_partitions} >= {("solo", held[0])}
    lost = {"solo", *LED_BY_EACH_BROKER}
    assert all(partition["loses"] == "all" and partition["topic"] in lost for partition in row.lost_partitions)
    services.start(acting=acting, rebalance=row, confirmed=3)

    def is_done() -> bool:
        job_runner.reconcile_once()
        confirm_generations()
        return Rebalance.objects.get(pk=row.pk).state == RebalanceState.DONE

    eventually(is_done, within_s=90, what="the removal")
    assert not any(3 in partition.replicas or partition.leader == -1 for partition in looks.view().partitions.values())
    assert ends(engines, "solo") == [0 if index in held else RECORDS for index in range(3)]
    assert ends(engines, "pair") == [RECORDS] * 3, "what others had is there"
    read = set(AuditOffset.objects.values_list("partition", flat=True))
    assert read == {index for (_, index), partition in own.items() if 3 not in partition.replicas}
    filled(engines, "solo")

    engines.brokers[2].start()
    engines.brokers[2].wait_until_ready()
    assert ends(engines, "solo") == [RECORDS if index in held else 2 * RECORDS for index in range(3)]
    # Only the tenant's: the topic of the groups is made with a copy on each live broker when a client first asks for
    # its coordinator, which may be before or after this one came back.
    after = looks.view([*topics.values()]).partitions
    assert len(after) == 6
    assert not any(3 in partition.replicas for partition in after.values())
