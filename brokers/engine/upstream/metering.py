"""Counts the bytes of records that pass a gateway, as brokers count those that they append and send."""

from __future__ import annotations

from typing import Literal

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.fetch import FetchResponse
from brokers.engine.protocol.messages.produce import ProduceRequest, ProduceResponse
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.throttling.refusals import refusal_rule

Direction = Literal["produce", "consume"]
# Bytes of records by topic and partition, under the tenant's names.
RecordBytes = dict[str, dict[int, int]]
_POLICY_VIOLATION = int(ErrorCode.POLICY_VIOLATION)


async def record_bytes_of(request: ProduceRequest) -> RecordBytes:
    """Returns the bytes of records that a produce sends."""
    time_slice = TimeSlice()
    result: RecordBytes = {}
    for topic in request.topic_data:
        partitions = result.setdefault(topic.name, {})
        for data in topic.partition_data:
            partitions[data.index] = partitions.get(data.index, 0) + len(data.records or b"")
            await time_slice.pause()
    return result


async def count_produced(
    services: BrokerServices, client: ClientContext, sent: RecordBytes, response: ProduceResponse
) -> None:
    """Counts the records of partitions that the upstream has accepted, and records refusals by a limit."""
    time_slice = TimeSlice()
    bytes_by_topic: dict[str, int] = {}
    refused = 0
    for topic in response.responses:
        partitions = sent.get(topic.name, {})
        for result in topic.partition_responses:
            if not result.error_code:
                bytes_by_topic[topic.name] = bytes_by_topic.get(topic.name, 0) + partitions.pop(result.index, 0)
            refused += result.error_code == _POLICY_VIOLATION
            await time_slice.pause()
    if refused:
        _record_refusals(client, refused, services.clock.now_ms())
    count(services, client, bytes_by_topic, "produce")


def _record_refusals(client: ClientContext, count: int, now_ms: int) -> None:
    if client.accounting is not None:
        rule = refusal_rule(client.view.state, None)
        client.accounting.record_refusals(rule, client.user, client.client_id, count, now_ms)


def count_sent(services: BrokerServices, client: ClientContext, sent: RecordBytes) -> None:
    """Counts all records of a produce without acknowledgements."""
    count(services, client, {topic: sum(partitions.values()) for topic, partitions in sent.items()}, "produce")


async def count_consumed(services: BrokerServices, client: ClientContext, response: FetchResponse) -> None:
    """Counts the records of a fetch."""
    time_slice = TimeSlice()
    bytes_by_topic: dict[str, int] = {}
    for topic in response.responses:
        size_bytes = 0
        for partition in topic.partitions:
            size_bytes += len(partition.records or b"")
            await time_slice.pause()
        bytes_by_topic[topic.topic] = bytes_by_topic.get(topic.topic, 0) + size_bytes
    count(services, client, bytes_by_topic, "consume")


def count(
    services: BrokerServices, client: ClientContext, bytes_by_topic: dict[str, int], direction: Direction
) -> None:
    """Adds bytes of records to the usage and the traffic of the client's instance. The control plane's own records are
    not billed, so its clients have no accounting.
    """
    total_bytes = sum(bytes_by_topic.values())
    if not total_bytes:
        return
    totals, accounting = services.accounting.totals, client.accounting
    if direction == "produce":
        totals.produce_bytes += total_bytes
    else:
        totals.consume_bytes += total_bytes
    if accounting is None:
        return
    now_ms = services.clock.now_ms()
    if direction == "produce":
        accounting.traffic.add_produced(total_bytes, now_ms)
    else:
        accounting.traffic.add_consumed(total_bytes, now_ms)
    for topic, size_bytes in bytes_by_topic.items():
        if size_bytes:
            accounting.usage.counter(topic, client.user, client.client_id, direction).add(size_bytes)
