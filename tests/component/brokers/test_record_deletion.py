"""Deletion of records by the control plane at real leaders with followers."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from brokers.dataplane import admin_client, offsets
from brokers.dataplane.record_deletion import delete_records
from brokers.dataplane.topics import KafkaTopicAdminClient
from instances.groups.interfaces import EARLIEST, LATEST
from tenants.errors import Conflict, Invalid, NotFound, Unavailable
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows

INSTANCE_ID = "ins-purge001"
BATCHES = 20
MANY = 200

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    folder = tmp_path_factory.mktemp("purging")
    with EngineCluster(zookeeper_address, folder, size=2, session_timeout_ms=30_000) as running:
        running.create_instance(INSTANCE_ID)
        yield running
    admin_client.links().close()


@pytest.fixture(autouse=True)
def _rows(engines: EngineCluster, tmp_path: Path, db: None) -> None:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID)


def make_topic(partitions: int = 2, **config: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    named = {key.replace("_", "."): value for key, value in config.items()}
    plane = KafkaTopicAdminClient()
    plane.create_topic(
        INSTANCE_ID, name, partitions=partitions, replication_factor=2, config=named, validate_only=False
    )
    eventually(
        lambda: all(len(one.isr) == 2 and one.leader > 0 for one in plane.topic(INSTANCE_ID, name).partitions),
        "every partition has two replicas in sync",
    )
    return name


def fill(engines: EngineCluster, topic: str, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": engines.instances[INSTANCE_ID].bootstrap, "acks": "all"})
    for number in range(BATCHES):
        for partition in range(partitions):
            producer.produce(topic, key=b"k", value=b"%d" % number, partition=partition)
    assert producer.flush(20) == 0


def ends_of(topic: str, partitions: int = 2) -> list[tuple[int, int]]:
    places = [(topic, index) for index in range(partitions)]
    starts, ends = (offsets.bounds(INSTANCE_ID, places, at) for at in (EARLIEST, LATEST))
    return [(starts[one], ends[one]) for one in places]


def test_records_below_an_offset_go_at_every_leader_and_again_without_harm(engines: EngineCluster) -> None:
    topic = make_topic()
    fill(engines, topic)
    for _ in range(2):
        assert delete_records(INSTANCE_ID, topic, {0: 7, 1: BATCHES}) == {}
        assert ends_of(topic) == [(7, BATCHES), (BATCHES, BATCHES)]


def test_an_offset_past_the_end_is_refused_and_the_other_partition_is_done(engines: EngineCluster) -> None:
    topic = make_topic()
    fill(engines, topic)
    errors = delete_records(INSTANCE_ID, topic, {0: 3, 1: BATCHES + 1})
    assert [(index, type(error), error.code) for index, error in errors.items()] == [
        (1, Invalid, "offset_out_of_range")
    ]
    assert ends_of(topic) == [(3, BATCHES), (0, BATCHES)]


def test_a_compacted_topic_keeps_its_records(engines: EngineCluster) -> None:
    topic = make_topic(cleanup_policy="compact")
    fill(engines, topic)
    errors = delete_records(INSTANCE_ID, topic, {0: 3})
    assert [(type(error), error.code) for error in errors.values()] == [(Conflict, "policy_violation")]
    assert ends_of(topic)[0] == (0, BATCHES)


def test_many_partitions_are_purged_in_one_call(engines: EngineCluster) -> None:
    topic = make_topic(MANY)
    fill(engines, topic, MANY)
    assert delete_records(INSTANCE_ID, topic, dict.fromkeys(range(MANY), BATCHES)) == {}
    assert set(ends_of(topic, MANY)) == {(BATCHES, BATCHES)}


def test_a_topic_that_is_not_there_is_not_found(engines: EngineCluster) -> None:
    with pytest.raises(NotFound):
        delete_records(INSTANCE_ID, "none", {0: 1})


def test_partitions_of_a_broker_that_stands_still_are_named_and_come_through_later(engines: EngineCluster) -> None:
    topic = make_topic()
    fill(engines, topic)
    leaders = {one.index: one.leader for one in KafkaTopicAdminClient().topic(INSTANCE_ID, topic).partitions}
    assert len(set(leaders.values())) == 2, leaders
    process = engines.brokers[leaders[1] - 1].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        errors = delete_records(INSTANCE_ID, topic, {1: 5})
    finally:
        process.send_signal(signal.SIGCONT)
    assert list(errors) == [1]
    assert isinstance(errors[1], Unavailable)
    eventually(lambda: delete_records(INSTANCE_ID, topic, {1: 5}) == {}, "the purge goes through")
    assert ends_of(topic)[1] == (5, BATCHES)
