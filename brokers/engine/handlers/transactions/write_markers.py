"""WriteTxnMarkers: a transaction coordinator ends a transaction on the partitions that this broker leads (TXN-12,
TXN-14).

Only brokers may send it, and the control plane for an operator who aborts a hanging transaction. Markers are appended
at once; the response is sent when they are committed, or with REQUEST_TIMED_OUT for the others: the coordinator may
send those again, and a repeated marker does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.engine.handlers.common.peer_brokers import is_broker, is_cluster
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.produce.delayed_produce import error_of
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions import transactions
from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Maximum wait until a marker is replicated, like the default of `request.timeout.ms`.
TIMEOUT_MS: Final = 30_000
# Maximum wait for the request of another broker, whose next request on the connection is processed after the response.
PEER_TIMEOUT_MS: Final = 2_000

PartitionResult = WritableTxnMarkerPartitionResult


class PendingMarker(NamedTuple):
    """A marker that is appended and not yet committed."""

    result: PartitionResult
    partition: Partition
    last_offset: int


async def write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not _may_write(context, request):
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _response(
            request, lambda _marker, _topic, index: PartitionResult(partition_index=index, error_code=code)
        )
    return await write_markers(context.services, request, PEER_TIMEOUT_MS)


def _may_write(context: RequestContext, request: WriteTxnMarkersRequest) -> bool:
    """True for a broker; the control plane may only abort, as Kafka's tool does (TXN-14)."""
    principal = context.view.principal
    is_abort = not any(marker.transaction_result for marker in request.markers)
    return is_broker(principal) or (is_cluster(principal) and is_abort)


async def write_markers(
    services: BrokerServices, request: WriteTxnMarkersRequest, timeout_ms: int = TIMEOUT_MS
) -> WriteTxnMarkersResponse:
    """Writes markers for a request or for this broker's coordinator. All are appended before the first wait."""
    now_ms = services.clock.now_ms()
    pending: list[PendingMarker] = []
    response = _response(
        request, lambda marker, topic, index: _append_marker(services, marker, topic, index, now_ms, pending)
    )
    if pending:
        await _wait_until_committed(services, pending, timeout_ms)
    return response


def _append_marker(
    services: BrokerServices,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    now_ms: int,
    pending: list[PendingMarker],
) -> PartitionResult:
    partition_result = PartitionResult(partition_index=index)
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        partition_result.error_code = int(ErrorCode.INVALID_REQUEST)
        return partition_result
    partition = services.storage.table.get(topic, index)
    if partition is None:
        partition_result.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition_result
    committed = marker.transaction_result
    result = transactions.append_marker(
        partition, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, committed, now_ms
    )
    partition_result.error_code = result.error_code
    if result.error_code:
        return partition_result
    groups = services.coordination.groups
    if groups is not None and topic == services.coordination.settings.groups_topic.name:
        groups.on_marker_appended(index, marker.producer_id, committed, result.last_offset)
    if partition.high_watermark <= result.last_offset:
        pending.append(PendingMarker(partition_result, partition, result.last_offset))
    return partition_result


async def _wait_until_committed(services: BrokerServices, pending: list[PendingMarker], timeout_ms: int) -> None:
    """Waits until all markers are committed, a leadership is lost, or the time is over; sets the result of each."""
    finished: asyncio.Future[None] = services.loop.create_future()

    def wake() -> None:
        if not finished.done():
            finished.set_result(None)

    wait = DelayedReplication(wake)
    for marker in pending:
        wait.watch(marker.partition, marker.last_offset)
    timer = services.loop.call_later(timeout_ms / 1000, wait.expire)
    try:
        await finished
    finally:
        timer.cancel()
        wait.cancel()
    for marker in pending:
        marker.result.error_code = error_of(wait, marker.partition, marker.last_offset)


def _response(
    request: WriteTxnMarkersRequest, result_of: Callable[[WritableTxnMarker, str, int], PartitionResult]
) -> WriteTxnMarkersResponse:
    """Returns the response with the result of each partition of each marker, in the order of the request."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[result_of(marker, topic.name, index) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
