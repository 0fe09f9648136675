"""The programs in `examples/`, run as a reader would run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from config.environment import BASE_DIR
from tests.testkit.engine import EngineCluster, eventually

FOLDER = BASE_DIR / "examples" / "python"
INSTANCE_ID = "ins-exampl01"
COUNT = 3_000


@pytest.fixture(scope="module")
def bootstrap(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("examples")) as running:
        yield running.create_instance(INSTANCE_ID).bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return make_topic(bootstrap)


def make_topic(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
        future.result(30)
    return name


def start(bootstrap: str, program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(FOLDER / program), *arguments],
        env={**os.environ, "BOOTSTRAP_SERVERS": bootstrap, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(bootstrap: str, program: str, *arguments: str, **environment: str) -> tuple[int, str]:
    process = start(bootstrap, program, *arguments, **environment)
    out, errors = process.communicate(timeout=120)
    return process.returncode, out + errors


def committed(bootstrap: str, topic: str) -> Counter[bytes]:
    """Values of a topic that readers of committed messages see."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    found: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the end of a partition"
        if message.error():
            ended.add(message.partition())
        else:
            found[message.value() or b""] += 1
    consumer.close()
    return found


def test_the_producer_stores_each_message_and_says_so(bootstrap: str, topic: str) -> None:
    assert run(bootstrap, "producer.py", topic, str(COUNT)) == (0, f"{COUNT} stored, 0 not stored\n")
    assert sorted(committed(bootstrap, topic).values()) == [1] * COUNT


def test_the_producer_ends_with_an_error_where_a_message_is_not_stored(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    limits = NewTopic(f"{topic}.small", 1, 1, config={"max.message.bytes": "100"})
    for future in admin.create_topics([limits]).values():
        future.result(30)
    status, words = run(bootstrap, "producer.py", f"{topic}.small", "200")
    assert status == 1
    assert "was not stored" in words


def test_the_consumer_goes_on_where_its_group_was(bootstrap: str, topic: str) -> None:
    run(bootstrap, "producer.py", topic, "700")
    status, first = run(bootstrap, "consumer.py", topic, f"readers-{topic}", QUIET_S="6")
    assert status == 0
    assert len(first.splitlines()) == 700
    run(bootstrap, "producer.py", topic, "5")
    _, second = run(bootstrap, "consumer.py", topic, f"readers-{topic}", QUIET_S="6")
    assert len(second.splitlines()) == 5


def test_copies_are_made_once_through_kills_and_a_second_copier(bootstrap: str, topic: str) -> None:
    target = make_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    sent = [f"value-{number}" for number in range(COUNT)]
    for value in sent[: COUNT // 2]:
        producer.produce(topic, value, value)
    assert producer.flush(30) == 0
    expected = Counter(value.upper().encode() for value in sent)
    killed = start(bootstrap, "copier.py", topic, target)
    eventually(lambda: committed(bootstrap, target), "the first copies", 60)
    killed.kill()
    killed.communicate()
    copiers = [start(bootstrap, "copier.py", topic, target, COPIER_NAME=name) for name in ("1", "2")]
    for value in sent[COUNT // 2 :]:
        producer.produce(topic, value, value)
    assert producer.flush(30) == 0
    try:
        eventually(lambda: committed(bootstrap, target).total() >= COUNT, "all copies", 120)
    finally:
        for copier in copiers:
            copier.send_signal(signal.SIGTERM)
        ends = [(copier.wait(60), copier.communicate()[1]) for copier in copiers]
    assert [status for status, _ in ends] == [0, 0], ends
    assert committed(bootstrap, target) == expected
