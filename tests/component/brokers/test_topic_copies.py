"""Copies of topics on real brokers, beside what confluent-kafka's consumer reads of both topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from django.utils import timezone

from brokers.dataplane import admin_client, topic_records
from instances import services
from instances.copying import turns
from instances.copying.interfaces import record_log
from instances.copying.limits import COPY_RESOLVE_AFTER_S
from instances.copying.models import CopyState, TopicCopy
from instances.models import Instance
from tenants.actors import system_actor
from tenants.errors import OutcomeUnknown
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows
from tests.testkit.fleet import plugged

INSTANCE_ID = "ins-copies01"
PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEGAN_MS = 1_770_000_000_000

pytestmark = pytest.mark.django_db(transaction=True)
Message = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("copies"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        yield running
    admin_client.links().close()


@pytest.fixture
def instance(engines: EngineCluster, tmp_path: Path, transactional_db: None) -> Instance:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID)
    return Instance.objects.get(pk=INSTANCE_ID)


@pytest.fixture
def bootstrap(engines: EngineCluster) -> str:
    return engines.instances[INSTANCE_ID].bootstrap


@pytest.fixture
def source(bootstrap: str) -> str:
    """A topic with records of each codec, of committed and aborted transactions, tombstones and repeated headers."""
    name = f"orders-{uuid.uuid4().hex[:6]}"
    topic = NewTopic(name, PARTITIONS, 2, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must outlive the request
    admin.create_topics([topic], request_timeout=30)[name].result(30)
    number = 0
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "compression.type": codec, "linger.ms": 50})
        for _ in range(40):
            number += 1
            value = None if number % 9 == 0 else b"value" * (number % 50)
            headers = [("trace", b"\xfe"), ("trace", None)] if number % 3 else []
            producer.produce(
                name, value, b"\xffkey-%d" % number, number % PARTITIONS, timestamp=BEGAN_MS + number * 1_000,
                headers=headers,
            )  # fmt: skip
        assert producer.flush(30) == 0
    for ends_well in (False, True):
        teller = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{ends_well}"})
        teller.init_transactions(30)
        teller.begin_transaction()
        for partition in range(PARTITIONS):
            teller.produce(name, b"aborted" if not ends_well else b"committed", b"t", partition, timestamp=BEGAN_MS)
        assert teller.flush(30) == 0
        teller.commit_transaction(30) if ends_well else teller.abort_transaction(30)
    return name


def read(bootstrap: str, topic: str) -> list[Message]:
    """All committed messages by partition and offset, without their offsets."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, Message]] = []
    ended: set[int] = set()

    def is_read() -> bool:
        for message in consumer.consume(500, timeout=1):
            if message.error():
                ended.add(message.partition())
                continue
            content = message.timestamp()[1], message.key(), message.value(), tuple(message.headers() or ())
            found.append((message.offset(), (message.partition(), *content)))
        return len(ended) == PARTITIONS

    eventually(is_read, "all messages are read")
    consumer.close()
    return [message for _, message in sorted(found, key=lambda entry: (entry[1][0], entry[0]))]


def begin(instance: Instance, source: str) -> TopicCopy:
    acting = system_actor("test", instance.tenant)
    return services.copy_topic(acting=acting, instance=instance, topic=source, name=f"{source}.copy")


def run(copy: TopicCopy, seconds_later: int = 0) -> TopicCopy:
    """Turns until the copy has ended, as the task runs them."""

    def has_ended() -> bool:
        now = timezone.now() + timedelta(seconds=seconds_later)
        turns.run_turn(copy.pk, deadline_s=time.monotonic() + 5, now=now)
        copy.refresh_from_db()
        return copy.state != CopyState.RUNNING

    eventually(has_ended, "the copy has ended")
    return copy


def test_a_copy_has_what_a_consumer_reads_of_its_source(instance: Instance, bootstrap: str, source: str) -> None:
    copy = run(begin(instance, source))
    assert (copy.state, copy.error) == (CopyState.SUCCEEDED, "")
    expected = read(bootstrap, source)
    assert read(bootstrap, copy.target) == expected
    assert (copy.copied_records, copy.skipped_records, copy.missed_offsets) == (len(expected), 0, 0)
    assert b"aborted" not in {message[3] for message in expected}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    ends = [consumer.get_watermark_offsets(TopicPartition(copy.target, part), 20) for part in range(PARTITIONS)]
    consumer.close()
    assert [low for low, _ in ends] == [0] * PARTITIONS
    assert sum(high for _, high in ends) == len(expected), "offsets begin at 0 and have no gaps"


def test_an_answer_that_is_lost_repeats_nothing(instance: Instance, bootstrap: str, source: str) -> None:
    appends = []

    class Losing(topic_records.TopicRecords):
        def append(self, partition: int, data: bytes) -> int:
            first = super().append(partition, data)
            appends.append(first)
            if len(appends) == 1:
                raise OutcomeUnknown
            return first

    with plugged(record_log, Losing):
        copy = begin(instance, source)
        turns.run_turn(copy.pk, deadline_s=time.monotonic() + 5, now=timezone.now())
        copy.refresh_from_db()
        assert copy.in_flight is not None
        copy = run(copy, seconds_later=COPY_RESOLVE_AFTER_S + 1)
    assert (copy.state, copy.error) == (CopyState.SUCCEEDED, "")
    assert read(bootstrap, copy.target) == read(bootstrap, source)


def test_records_that_were_purged_are_counted_as_missed(instance: Instance, bootstrap: str, source: str) -> None:
    copy = begin(instance, source)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    purged = TopicPartition(source, 0, 10)
    admin.delete_records([purged])[purged].result(30)
    copy = run(copy)
    assert (copy.state, copy.missed_offsets) == (CopyState.SUCCEEDED, 10)
