"""A topic of a real product that is deleted and restored over REST, with its clients."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.testkit.engine import eventually
from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, another_tenant, demo_tenant

pytestmark = pytest.mark.system

MESSAGES = 50
WORST_PARTITIONS = 40  # an instance of this size may have 50
CLIENTS = 120
ROUNDS = 5
ANSWER_S_MAX = 10.0  # on a machine that does other things meanwhile
NEIGHBOUR_S_MAX = 3.0


@pytest.fixture(scope="module")
def tenant(stack: Stack) -> Caller:
    return demo_tenant(stack)


@pytest.fixture(scope="module")
def instance(tenant: Caller) -> dict[str, Any]:
    return tenant.instance(f"undo-{uuid.uuid4().hex[:6]}", bandwidth_mb_s=20, storage_gb=4)


def read(bootstrap: str, topic: str, client_id: str) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "client.id": client_id})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: set[bytes] = set()

    def is_all_read() -> bool:
        found.update(message.value() for message in consumer.consume(100, timeout=1) if message.error() is None)
        return len(found) >= MESSAGES

    eventually(is_all_read, "all messages are read")
    consumer.close()
    return found


def test_a_topic_deleted_by_rest_fails_its_producers_and_comes_back_whole(
    tenant: Caller, instance: dict[str, Any], stack: Stack
) -> None:
    topic, bootstrap = f"orders-{uuid.uuid4().hex[:6]}", instance["bootstrap_servers"]
    tenant.topic(instance["id"], topic)
    at = f"/instances/{instance['id']}"
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "till-7", "message.timeout.ms": 4_000})
    for number in range(MESSAGES):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    before = read(bootstrap, topic, "report-1")
    eventually(lambda: tenant.get(f"{at}/topics/{topic}/consumers")["items"], "the consumer is counted")
    (item,) = tenant.get(f"{at}/topics/{topic}/producers")["items"]
    assert (item["client_id"], item["total_bytes"] > MESSAGES) == ("till-7", True)
    assert another_tenant(stack).call("GET", f"{at}/topics/{topic}/producers")[0] == 404

    assert tenant.call("DELETE", f"{at}/topics/{topic}")[0] == 204
    assert tenant.call("GET", f"{at}/topics/{topic}")[0] == 404
    refused: list[Any] = []

    def is_refused() -> bool:
        producer.produce(topic, "late", partition=0, on_delivery=lambda error, _message: refused.append(error))
        producer.flush(10)
        return refused[-1] is not None

    eventually(is_refused, "brokers have heard of it")
    assert [item["name"] for item in tenant.get(f"{at}/deleted-topics")["items"]] == [topic]
    assert tenant.get(f"{at}/storage")["deleted_bytes"] > 0
    assert another_tenant(stack).call("POST", f"{at}/topics/{topic}/restore")[0] == 404

    assert tenant.call("POST", f"{at}/topics/{topic}/restore")[0] == 204
    eventually(lambda: tenant.call("GET", f"{at}/topics/{topic}")[0] == 200, "the topic is there again")
    assert before <= read(bootstrap, topic, "report-1")

    assert tenant.call("DELETE", f"{at}/topics/{topic}")[0] == 204
    assert tenant.call("DELETE", f"{at}/deleted-topics/{topic}")[0] == 204
    eventually(
        lambda: tenant.call("POST", f"{at}/topics", {"name": topic, "partitions": 1})[0] == 201, "its name is free"
    )
    assert tenant.get(f"{at}/topics/{topic}/messages")["messages"] == []


def test_the_worst_purges_lists_of_clients_and_quickstarts_leave_a_neighbour_alone(
    stack: Stack, tenant: Caller, instance: dict[str, Any]
) -> None:
    """Eight callers at once request lists and purges of a topic with many partitions and many clients."""
    topic, bootstrap = f"worst-{uuid.uuid4().hex[:6]}", instance["bootstrap_servers"]
    tenant.topic(instance["id"], topic, WORST_PARTITIONS)
    at = f"/instances/{instance['id']}"
    producers = [
        Producer({"bootstrap.servers": bootstrap, "client.id": f"{number}-{'x' * 200}"}) for number in range(CLIENTS)
    ]
    for number, producer in enumerate(producers):
        producer.produce(topic, b"x", partition=number % WORST_PARTITIONS)
    assert all(producer.flush(60) == 0 for producer in producers)

    neighbour = another_tenant(stack)
    beside = neighbour.instance(f"beside-{uuid.uuid4().hex[:6]}", bandwidth_mb_s=5, storage_gb=2)
    neighbour.topic(beside["id"], "quiet")
    is_over = threading.Event()
    waits_s: list[float] = []
    delivered_s: list[float] = []

    def look() -> None:
        quiet = Producer({"bootstrap.servers": beside["bootstrap_servers"], "linger.ms": 0})
        while not is_over.is_set():
            began_s = time.monotonic()
            quiet.produce("quiet", b"x")
            assert quiet.flush(30) == 0
            delivered_s.append(time.monotonic() - began_s)
            began_s = time.monotonic()
            neighbour.get("/instances")
            waits_s.append(time.monotonic() - began_s)
            is_over.wait(0.05)

    took_s: list[float] = []
    statuses: set[int] = set()

    def ask(method: str, path: str, body: Any = None) -> Callable[[], None]:
        def ask_often() -> None:
            for _ in range(ROUNDS):
                began_s = time.monotonic()
                statuses.add(tenant.call(method, at + path, body)[0])
                took_s.append(time.monotonic() - began_s)

        return ask_often

    purge = {"before": {str(partition): -1 for partition in range(WORST_PARTITIONS)}}
    asked = [
        ask("GET", "/clients?contains=no-such-client&sort=-requests&page_size=200"),
        ask("GET", f"/topics/{topic}/producers?contains=x&sort=-rate&page_size=200"),
        ask("GET", f"/topics/{topic}/consumers?sort=-lag"),
        ask("POST", f"/topics/{topic}/purge", purge),
        ask("POST", f"/topics/{topic}/purge?dry_run=true", purge),
        ask("POST", "/quickstart", {}),
        ask("POST", "/quickstart?dry_run=true", {}),
        ask("GET", "/topics?sort=-lag&page_size=200"),
    ]
    watcher, callers = threading.Thread(target=look), [threading.Thread(target=call) for call in asked]
    for thread in (watcher, *callers):
        thread.start()
    for thread in callers:
        thread.join()
    is_over.set()
    watcher.join()
    assert statuses <= {200, 201, 409, 429, 503}, statuses
    assert max(took_s) < ANSWER_S_MAX, sorted(took_s)[-5:]
    assert waits_s and delivered_s
    for waits in (waits_s, delivered_s):
        assert statistics.median(waits) < NEIGHBOUR_S_MAX / 3 and max(waits) < NEIGHBOUR_S_MAX, sorted(waits)[-5:]
