"""Metered bytes equal the client's count, to the byte."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import message_class
from brokers.engine.records import builder
from tests.product.system.attacks import filled
from tests.product.system.wire import Wire
from tests.testkit.stack import Stack
from tests.testkit.tenancy import addresses, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

USAGE_VISIBLE_WITHIN_S = 150


def test_usage_equals_the_bytes_the_client_sent_and_got(stack: Stack) -> None:
    caller = demo_tenant(stack)
    instance = caller.instance("metered", bandwidth_mb_s=20)
    caller.topic(instance["id"], "orders", 3)
    produced = consumed = 0
    for partition, address in enumerate(leaders(addresses(instance))):
        with Wire(address) as wire:
            for size in (10, 1_000, 30_000):
                batch = bytes(builder.build_batch([builder.Record(int(time.time() * 1000), b"k", b"v" * size)]))
                assert produce(wire, partition, batch) == 0
                produced += len(batch)
            assert produce(wire, partition, batch[:-1] + b"?") != 0, "a corrupt batch is refused, and free"
            consumed += len(fetch(wire, partition, 0))
            assert fetch(wire, partition, 3) == b"", "an empty answer is free"
    assert consumed == produced

    def totals() -> dict[str, int]:
        start = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return dict(caller.get(f"/instances/{instance['id']}/usage?start={start}&end={end}&step=minute")["totals"])

    began = time.monotonic()
    eventually(
        lambda: totals()["consume_bytes"] >= consumed and totals()["produce_bytes"] >= produced,
        within_s=USAGE_VISIBLE_WITHIN_S,
        what="the usage of this load",
    )
    print(f"usage visible after {time.monotonic() - began:.1f} s")
    assert totals() == {
        "produce_bytes": produced,
        "consume_bytes": consumed,
        "produce_requests": 9,
        "consume_requests": 3,
    }
    caller.call("DELETE", f"/instances/{instance['id']}")


def leaders(bootstrap: list[str]) -> list[str]:
    """Returns the address of the leader of each partition of `orders`."""
    request = filled(message_class(ApiKey.METADATA, "request"), 9, "orders", bytes(16))
    with Wire(bootstrap[0]) as wire:
        answer = wire.call(ApiKey.METADATA, 9, request)
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    partitions = sorted(answer.topics[0].partitions, key=lambda partition: partition.partition_index)
    return [brokers[partition.leader_id] for partition in partitions]


def produce(wire: Wire, partition: int, batch: bytes) -> int:
    request = filled(message_class(ApiKey.PRODUCE, "request"), 9, "orders", bytes(16))
    data = request.topic_data[0].partition_data[0]
    data.index, data.records = partition, batch
    answer = wire.call(ApiKey.PRODUCE, 9, request)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(wire: Wire, partition: int, offset: int) -> bytes:
    request = filled(message_class(ApiKey.FETCH, "request"), 12, "orders", bytes(16))
    request.topics[0].partitions[0].partition = partition
    request.topics[0].partitions[0].fetch_offset = offset
    request.forgotten_topics_data = []
    answer = wire.call(ApiKey.FETCH, 12, request)
    result = answer.responses[0].partitions[0]
    assert result.error_code == 0
    return result.records or b""
