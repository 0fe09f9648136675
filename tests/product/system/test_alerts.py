"""Alert rules on a real product: the lag of a real group, and brokers that answer."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system

RECORDS = 30
# A sample every 10 s, an evaluation every minute, and a machine that is busy.
EVALUATED_WITHIN_S = 240.0


@pytest.fixture(scope="module")
def tenant(stack: Stack) -> Caller:
    return demo_tenant(stack)


@pytest.fixture(scope="module")
def instance(tenant: Caller) -> dict[str, Any]:
    return tenant.instance(f"alerts-{uuid.uuid4().hex[:6]}")


def fall_behind(instance: dict[str, Any], topic: str, group: str) -> None:
    """Creates a group that has read none of the records."""
    producer = Producer({"bootstrap.servers": instance["bootstrap_servers"], "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": instance["bootstrap_servers"], "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def test_a_rule_reads_the_lag_of_a_real_group_and_that_brokers_answer(tenant: Caller, instance: dict[str, Any]) -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    tenant.topic(instance["id"], topic, 1)
    fall_behind(instance, topic, "late")
    made = {}
    for kind, more in (
        ("consumer_lag", {"threshold": RECORDS, "group_id": "late", "topic": topic}),
        ("brokers_silent", {"threshold": 1}),
        ("throttled_share", {"threshold": 1}),
    ):
        body = {"name": f"{kind} {topic}", "instance_id": instance["id"], "kind": kind, **more}
        status, answer = tenant.call("POST", "/alert-rules", body)
        assert status == 201, answer
        made[kind] = answer["id"]

    def known() -> dict[str, tuple[str, int]] | None:
        rules = {kind: tenant.get(f"/alert-rules/{rule}") for kind, rule in made.items()}
        if any(rule["is_unknown"] for rule in rules.values()):
            return None
        return {kind: (rule["state"], rule["value"]) for kind, rule in rules.items()}

    assert eventually(known, within_s=EVALUATED_WITHIN_S) == {
        "consumer_lag": ("pending", RECORDS),
        "brokers_silent": ("ok", 0),
        "throttled_share": ("ok", 0),
    }
    for rule in made.values():
        assert tenant.call("DELETE", f"/alert-rules/{rule}")[0] == 204
