"""Consumer groups and transactions of a real product, over REST, with real clients."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, another_tenant, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system

PARTITIONS = 3
MESSAGES = 30

Join = Callable[[str], Consumer]


@pytest.fixture(scope="module")
def tenant(stack: Stack) -> Caller:
    return demo_tenant(stack)


@pytest.fixture(scope="module")
def instance(tenant: Caller) -> dict[str, Any]:
    return tenant.instance(f"groups-{uuid.uuid4().hex[:6]}")


@pytest.fixture
def topic(tenant: Caller, instance: dict[str, Any]) -> str:
    """A topic with some messages in every partition."""
    name = f"orders-{uuid.uuid4().hex[:6]}"
    tenant.topic(instance["id"], name, PARTITIONS)
    produce(instance, name, MESSAGES)
    return name


def produce(instance: dict[str, Any], topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": instance["bootstrap_servers"], "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.fixture
def reader(instance: dict[str, Any], topic: str) -> Iterator[Join]:
    """Creates consumers of a group; open ones are closed at the end."""
    made: list[Consumer] = []

    def join(group: str) -> Consumer:
        consumer = Consumer({
            "bootstrap.servers": instance["bootstrap_servers"], "group.id": group, "client.id": f"client-{len(made)}",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6_000,
        })  # fmt: skip
        consumer.subscribe([topic])
        made.append(consumer)
        return consumer

    yield join
    for consumer in made:
        with contextlib.suppress(RuntimeError):  # closed already
            consumer.close()


def read(consumers: list[Consumer], count: int) -> set[tuple[int, int]]:
    """Reads and commits a number of messages; returns their (partition, offset)."""
    result: set[tuple[int, int]] = set()

    def reconcile_once() -> bool:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                result.add((message.partition(), message.offset()))
                consumer.commit(message, asynchronous=False)
        return len(result) >= count

    eventually(reconcile_once, within_s=60, what=f"{count} messages")
    return result


def test_a_group_is_seen_reset_and_deleted_while_real_consumers_come_and_go(
    tenant: Caller, instance: dict[str, Any], topic: str, reader: Join
) -> None:
    root = f"/instances/{instance['id']}/groups"
    both = [reader("etl"), reader("etl")]
    assert len(read(both, MESSAGES)) == MESSAGES
    group = eventually(lambda: stable(tenant, root, both), within_s=60, what="both to share the partitions")
    assigned = [(item["topic"], item["partition"]) for member in group["members"] for item in member["assignment"]]
    assert sorted(assigned) == [(topic, index) for index in range(PARTITIONS)]
    assert group["lag"] == 0
    assert {member["client_id"] for member in group["members"]} == {"client-0", "client-1"}
    status, refused = tenant.call("POST", f"{root}/etl/offsets", {"to": "earliest"})
    assert (status, refused["code"]) == (409, "group_not_empty")
    for consumer in both:
        consumer.close()
    produce(instance, topic, 6)
    eventually(
        lambda: [(item["state"], item["members"], item["lag"]) for item in listed(tenant, root)] == [("Empty", 0, 6)],
        within_s=30,
        what="a group without members that is six messages behind",
    )
    status, table = tenant.call("POST", f"{root}/etl/offsets?dry_run=true", {"to": "shift", "by": -4})
    assert (status, table["changed"]) == (200, PARTITIONS)
    assert tenant.get(f"{root}/etl")["lag"] == 6
    status, table = tenant.call("POST", f"{root}/etl/offsets", {"to": "earliest"})
    assert status == 200
    assert {line["after"] for line in table["offsets"]} == {0}
    everything = read([reader("etl")], MESSAGES + 6)
    assert {offset for _partition, offset in everything if offset < 1} == {0}
    status, _ = tenant.call("DELETE", f"{root}/etl")
    assert status == 409


def stable(tenant: Caller, root: str, consumers: list[Consumer]) -> dict[str, Any] | None:
    """Waits until each consumer has partitions; they have to be polled for that."""
    for consumer in consumers:
        message = consumer.poll(0.05)
        assert message is None or message.error()
    group: dict[str, Any] = tenant.get(f"{root}/etl")
    is_shared = group["state"] == "Stable" and len(group["members"]) == len(consumers)
    return group if is_shared and all(member["assignment"] for member in group["members"]) else None


def listed(tenant: Caller, root: str) -> list[dict[str, Any]]:
    return [item for item in tenant.get(root)["items"] if item["id"] == "etl"]


def test_offsets_are_put_back_forgotten_and_deleted(
    tenant: Caller, instance: dict[str, Any], topic: str, reader: Join
) -> None:
    root = f"/instances/{instance['id']}/groups/nightly"
    consumer = reader("nightly")
    read([consumer], 9)
    consumer.close()
    eventually(lambda: tenant.get(root)["state"] == "Empty", within_s=30, what="no member")
    status, moved = tenant.call("POST", f"{root}/offsets", {"to": "latest"})
    assert status == 200
    assert tenant.get(root)["lag"] == 0
    before = [
        {name: line[name] for name in ("topic", "partition")} | {"offset": line["before"]} for line in moved["offsets"]
    ]
    status, _ = tenant.call("POST", f"{root}/offsets", {"to": "given", "offsets": before})
    assert status == 200
    offsets = {line["partition"]: line["committed"] for line in tenant.get(root)["offsets"]}
    assert offsets == {line["partition"]: line["offset"] for line in before}
    assert tenant.call("DELETE", f"{root}/offsets?topic={topic}")[0] == 204
    assert tenant.call("DELETE", root)[0] in (204, 404)  # without offsets and members it may have gone by itself
    assert tenant.call("GET", root)[0] == 404


def test_an_open_transaction_is_seen_until_it_is_committed(
    tenant: Caller, instance: dict[str, Any], topic: str
) -> None:
    root = f"/instances/{instance['id']}/transactions"
    producer = Producer({"bootstrap.servers": instance["bootstrap_servers"], "transactional.id": "mover"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in flight", partition=1)
    producer.flush(30)
    (result,) = tenant.get(f"{root}?state=in_flight")["items"]
    assert (result["id"], result["state"], result["is_overdue"]) == ("mover", "Ongoing", False)
    assert result["partitions"] == [{"topic": topic, "partition": 1}]
    (line,) = tenant.get(f"{root}/mover")["producers"]
    assert line["first_offset"] is not None
    producer.commit_transaction(30)
    eventually(lambda: tenant.get(f"{root}?state=in_flight")["items"] == [], within_s=30, what="the commit")
    assert tenant.get(f"{root}/mover")["state"] == "CompleteCommit"


def test_nobody_sees_another_tenants_groups(
    stack: Stack, tenant: Caller, instance: dict[str, Any], topic: str, reader: Join
) -> None:
    read([reader("private")], 1)
    stranger = another_tenant(stack)
    for method, path, body in (
        ("GET", "groups", None),
        ("GET", "groups/private", None),
        ("POST", "groups/private/offsets", {"to": "earliest"}),
        ("DELETE", "groups/private", None),
        ("GET", "transactions", None),
    ):
        assert stranger.call(method, f"/instances/{instance['id']}/{path}", body)[0] == 404
    own = stranger.instance("own")
    assert stranger.get(f"/instances/{own['id']}/groups")["items"] == []
    consumer = Consumer({"bootstrap.servers": own["bootstrap_servers"], "group.id": "private"})
    try:
        offsets = consumer.committed([TopicPartition(topic, 0)], timeout=20)
        assert offsets[0].offset < 0
    finally:
        consumer.close()
