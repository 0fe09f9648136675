"""Applications with a client of confluent-kafka work through a gateway as they do without one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.component.gateway.conftest import FIRST, OPEN, SECOND
from tests.testkit.engine import eventually
from tests.testkit.gateway import GatewayProcess, Upstream

TIMEOUT_S = 60
RECORDS = 500


def create(admin: AdminClient, name: str, partitions: int = 3, **config: str) -> str:
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(TIMEOUT_S)
    eventually(lambda: _has_leaders(admin, name), f"{name} has leaders")
    return name


def _has_leaders(admin: AdminClient, name: str) -> bool:
    topic = admin.list_topics(name, timeout=TIMEOUT_S).topics[name]
    return bool(topic.partitions) and all(partition.leader >= 0 for partition in topic.partitions.values())


@contextmanager
def consuming(config: dict[str, Any], topic: str, group: str) -> Iterator[Consumer]:
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """Returns this number of messages, and fails if there are none for a minute."""
    messages: list[Message] = []
    ends_s = time.monotonic() + TIMEOUT_S
    while len(messages) < count and time.monotonic() < ends_s:
        for message in consumer.consume(count - len(messages), timeout=1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    assert len(messages) == count
    return messages


def test_a_producer_and_a_group_of_consumers_exchange_records(gateway: GatewayProcess) -> None:
    config = gateway.client(FIRST)
    topic = create(AdminClient(config), "exchanged")
    producer = Producer({**config, "enable.idempotence": True, "compression.type": "zstd"})
    failures: list[KafkaError] = []
    for number in range(RECORDS):
        producer.produce(
            topic, str(number), key=str(number), on_delivery=lambda error, _: failures.extend([error] if error else [])
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures
    with consuming(config, topic, "exchangers") as first, consuming(config, topic, "exchangers") as second:
        read_values: set[bytes] = set()
        positions: dict[int, int] = {}

        def all_read() -> bool:
            for consumer in (first, second):
                for message in consumer.consume(RECORDS, timeout=0.2):
                    read_values.add(message.value())
                    positions[message.partition()] = message.offset() + 1
            return len(read_values) == RECORDS and bool(first.assignment() and second.assignment())

        eventually(all_read, "all records are read, and both consumers have partitions", TIMEOUT_S)
        first.commit(
            offsets=[TopicPartition(topic, index, offset) for index, offset in positions.items()], asynchronous=False
        )
    with consuming(config, topic, "exchangers") as third:
        committed = third.committed([TopicPartition(topic, index) for index in range(3)], timeout=TIMEOUT_S)
        assert sum(position.offset for position in committed) == RECORDS


def test_an_application_copies_in_transactions(gateway: GatewayProcess) -> None:
    config = gateway.client(FIRST)
    source, target = create(AdminClient(config), "source", 1), create(AdminClient(config), "target", 1)
    plain = Producer(config)
    for number in range(10):
        plain.produce(source, str(number))
    assert plain.flush(TIMEOUT_S) == 0
    producer = Producer({**config, "transactional.id": "copier"})
    producer.init_transactions(TIMEOUT_S)
    with consuming(config, source, "copiers") as consumer:
        messages = read(consumer, 10)
        for messages_of_one, decision in ((messages[:5], "abort"), (messages, "commit")):
            producer.begin_transaction()
            for message in messages_of_one:
                producer.produce(target, message.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
            if decision == "abort":
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)
        committed = consumer.committed([TopicPartition(source, 0)], timeout=TIMEOUT_S)
        assert committed[0].offset == 10
    with consuming({**config, "isolation.level": "read_committed"}, target, "checkers") as checker:
        assert [message.value() for message in read(checker, 10)] == [b"%d" % number for number in range(10)]


def test_topics_are_created_described_and_deleted(gateway: GatewayProcess) -> None:
    admin = AdminClient(gateway.client(SECOND))
    create(admin, "kept", **{"retention.ms": "60000"})
    create(admin, "dropped")
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    config = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert config["retention.ms"].value == "60000"
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(TIMEOUT_S)
    admin.delete_topics(["dropped"])["dropped"].result(TIMEOUT_S)
    eventually(lambda: "dropped" not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")


def test_clients_learn_the_addresses_of_the_gateway_alone(gateway: GatewayProcess, upstream: Upstream) -> None:
    metadata = AdminClient(gateway.client(FIRST)).list_topics(timeout=TIMEOUT_S)
    addresses = {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
    assert addresses == set(gateway.bootstrap(FIRST).split(","))
    assert set(metadata.brokers) == set(upstream.nodes)


def test_a_wrong_password_is_refused(gateway: GatewayProcess) -> None:
    errors: list[KafkaError] = []
    config = gateway.client(FIRST, password="another")
    producer = Producer({**config, "error_cb": errors.append})

    def refused() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    eventually(refused, "the password is refused")


def test_a_user_may_do_what_access_rules_allow(gateway: GatewayProcess) -> None:
    create(AdminClient(gateway.client(FIRST)), "orders", 1)
    owner = Producer(gateway.client(FIRST))
    owner.produce("orders", b"order")
    assert owner.flush(TIMEOUT_S) == 0
    config = gateway.client(FIRST, "reader")
    with consuming(config, "orders", "readers") as consumer:
        assert read(consumer, 1)[0].value() == b"order"
        consumer.commit(asynchronous=False)
    reports: list[KafkaError] = []
    producer = Producer(config)
    producer.produce("orders", b"forged", on_delivery=lambda error, _: reports.append(error))
    producer.flush(TIMEOUT_S)
    assert [error.code() for error in reports] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert set(AdminClient(config).list_topics(timeout=TIMEOUT_S).topics) == {"orders"}
    with consuming(config, "orders", "strangers") as stranger:
        eventually(
            lambda: (
                (message := stranger.poll(0.5)) is not None
                and message.error() is not None
                and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            ),
            "the group is refused",
        )


def test_partitions_of_an_instance_are_limited(gateway: GatewayProcess) -> None:
    admin = AdminClient(gateway.client(FIRST))
    with pytest.raises(KafkaException, match="the instance may have 60 partitions"):
        admin.create_topics([NewTopic("large", 61, 1)])["large"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match=r"not set through a gateway: segment\.bytes"):
        config = {"segment.bytes": "14"}
        admin.create_topics([NewTopic("small", 1, 1, config=config)])["small"].result(TIMEOUT_S)


def test_an_open_instance_needs_no_sign_in(gateway: GatewayProcess) -> None:
    config = {"bootstrap.servers": gateway.bootstrap(OPEN)}
    topic = create(AdminClient(config), "unguarded", 1)
    producer = Producer({**config, "acks": "0"})
    producer.produce(topic, b"unacknowledged")
    assert producer.flush(TIMEOUT_S) == 0
    with consuming(config, topic, "anybody") as consumer:
        assert read(consumer, 1)[0].value() == b"unacknowledged"
