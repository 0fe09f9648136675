"""A cluster is grown, levelled, shrunk and restarted under the eyes of clients, who notice nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.system.operator import Operator

pytestmark = pytest.mark.system

PARTITIONS = {"op-pair": (9, 2), "op-wide": (6, 3), "op-solo": (3, 1)}
QUIET = {"log_level": 0}
PAUSE_S = 0.005
WITHIN_S = 90.0
PAUSE_S_MAX = 10.0


@dataclass
class Traffic:
    """What a producer was told: (topic, partition, offset, key) of every acknowledgement, and every error."""

    bootstrap: str
    acknowledged: set[tuple[str, int, int, bytes]] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.slowest_s = max(self.slowest_s, message.latency() or 0.0)
        self.acknowledged.add((message.topic(), message.partition(), message.offset(), message.key()))

    def unread(self) -> set[tuple[str, int, int, bytes]]:
        """What was acknowledged and cannot be read."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "op", "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.assign([TopicPartition(name, i, 0) for name, (count, _) in PARTITIONS.items() for i in range(count)])
        missing = set(self.acknowledged)
        deadline_s = time.monotonic() + WITHIN_S
        while missing and time.monotonic() < deadline_s:
            for message in consumer.consume(5_000, 0.5):
                if message.error() is None:
                    missing.discard((message.topic(), message.partition(), message.offset(), message.key()))
        consumer.close()
        return missing


@contextmanager
def traffic(bootstrap: str) -> Iterator[Traffic]:
    """An idempotent producer with acks=all to every partition, until the block ends."""
    found, must_stop = Traffic(bootstrap), threading.Event()

    def run() -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5, **QUIET}
        )
        number = 0
        while not must_stop.wait(PAUSE_S):
            for name, (count, _) in PARTITIONS.items():
                number += 1
                producer.produce(
                    name, b"x" * 200, str(number).encode(), partition=number % count, on_delivery=found.told
                )
            producer.poll(0)
        producer.flush(WITHIN_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        must_stop.set()
        thread.join()


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Operator:
    return Operator(stack)


@pytest.fixture(scope="module")
def cluster(operator: Operator) -> str:
    (found,) = operator.get("/operator/clusters")["items"]
    return str(found["id"])


@pytest.fixture(scope="module")
def topics(stack: Stack) -> Iterator[str]:
    """Topics of one, two and three copies; gives back the bootstrap servers."""
    bootstrap = str(stack.ready["instance"]["bootstrap_servers"])
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [NewTopic(name, count, factor) for name, (count, factor) in PARTITIONS.items()]
    for made in admin.create_topics(wanted).values():
        made.result(30)
    yield bootstrap
    for gone in admin.delete_topics(list(PARTITIONS)).values():
        gone.result(30)


def seen(operator: Operator, cluster: str) -> Any:
    return operator.get(f"/operator/clusters/{cluster}")


def is_whole(found: Any) -> bool:
    counts = found["counts"]
    return counts is not None and not (counts["under_replicated"] or counts["offline"] or found["silent"])


def carried_out(operator: Operator, body: dict[str, Any]) -> Any:
    """A rebalance from plan to end."""
    row = operator.post("/operator/rebalances", body)
    at = f"/operator/rebalances/{row['id']}"
    operator.post(f"{at}/start")
    eventually(lambda: operator.get(at)["state"] == "done", within_s=WITHIN_S, what=f"{body['kind']} to be done")
    return operator.get(at)


def test_a_broker_joins_takes_its_share_and_goes_again_under_traffic(
    stack: Stack, operator: Operator, cluster: str, topics: str
) -> None:
    """REP-32, REP-33, CKA-47: no client sees an error, and every acknowledged record is where it was."""
    (host,) = operator.get("/operator/hosts")["items"]
    with traffic(topics) as sent:
        added = operator.post("/operator/brokers", {"cluster_id": cluster, "host_id": host["id"]})
        eventually(
            lambda: any(one["is_live"] and one["id"] == added["id"] for one in seen(operator, cluster)["brokers"]),
            within_s=WITHIN_S,
            what="the added broker to join",
        )
        levelled = carried_out(operator, {"kind": "balance", "cluster_id": cluster})
        assert levelled["progress"]["done"] == levelled["progress"]["total"] > 0
        shares = {one["number"]: one["replicas"] for one in seen(operator, cluster)["brokers"]}
        assert shares[added["number"]] >= 3
        removal = {"kind": "drain", "broker_id": added["id"], "remove_broker": True}
        removed = carried_out(operator, removal)
        assert removed["shares"]["after"][str(added["number"])]["replicas"] == 1  # its own usage, till it stops
    assert not sent.errors, sent.errors[:3]
    assert len(sent.acknowledged) > 100
    assert sent.slowest_s < PAUSE_S_MAX
    assert not sent.unread()
    found = seen(operator, cluster)
    assert added["number"] not in [one["number"] for one in found["brokers"]]
    assert is_whole(found) and not found["counts"]["moving"]
    eventually(
        lambda: len([p for p in stack.processes() if "brokers.engine" in " ".join(p.cmdline())]) == stack.brokers,
        within_s=WITHIN_S,
        what="the removed broker's process to end",
    )


def test_a_rolling_restart_waits_for_every_replica_and_no_client_sees_an_error(
    operator: Operator, cluster: str, topics: str
) -> None:
    """REP-34."""
    eventually(lambda: is_whole(seen(operator, cluster)), within_s=WITHIN_S, what="the cluster to be whole")
    before = {one["number"]: one["status"]["epoch"] for one in operator.get("/operator/brokers")["items"]}
    with traffic(topics) as sent:
        row = operator.post("/operator/rolling_restarts", {"cluster_id": cluster})
        at = f"/operator/rolling_restarts/{row['id']}"
        eventually(lambda: operator.get(at)["state"] == "done", within_s=WITHIN_S, what="the rolling restart")
    assert not sent.errors, sent.errors[:3]
    assert sent.slowest_s < PAUSE_S_MAX * 2
    assert not sent.unread()
    assert is_whole(seen(operator, cluster))

    def all_are_others() -> bool:
        after = {one["number"]: one["status"]["epoch"] for one in operator.get("/operator/brokers")["items"]}
        return all(after[number] != epoch for number, epoch in before.items())

    eventually(all_are_others, within_s=WITHIN_S, what="every broker to have registered anew")
