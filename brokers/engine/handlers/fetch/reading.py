"""Reads the partitions of a client's Fetch: whole batches as they are in the log (WIRE-27 to 29), or chooses the
replica that a client with a rack reads from (KIP-392, WIRE-32).

The leader names an in-sync follower in the client's rack, which is what Kafka's `RackAwareReplicaSelector` does. A
follower that is no longer in sync, or does not reach the leader, names the leader; Kafka's followers go on serving such
clients until these ask the leader again, minutes later.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.fetch.request import UNDEFINED, FetchReadResult, FetchRequest, PartitionResult
from brokers.engine.handlers.fetch.waits import UncachedRead
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.partition import NO_EPOCH, Partition
from brokers.engine.partitions.producers import list_aborted
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.fast_codec_fetch import FetchPartitionRequest, FetchTopicRequest
from brokers.engine.records.compression import ZSTD
from brokers.engine.throttling.charging import fetch_cap_bytes

# The client reads from the broker that it asked.
NO_PREFERRED_REPLICA: Final = -1
# First version whose clients can decompress zstd; older ones get an error from topics with `compression.type=zstd`.
ZSTD_FROM: Final = 10


def reads_by_rack(client: ClientContext) -> bool:
    """True if clients of the instance may read from followers; the bandwidth of its brokers is then divided by replicas
    (`assembly.bandwidth`).
    """
    accounting = client.accounting
    return accounting is not None and accounting.shares.reads_followers


def preferred_replica(
    services: BrokerServices, client: ClientContext, partition: Partition, rack: str, leader_epoch: int, offset: int
) -> int:
    """Returns the broker that a client in `rack` should read from, NO_PREFERRED_REPLICA for this one."""
    if partition.is_follower:
        return _leader_if_lagging(services, client, partition)
    leadership = partition.leadership
    if leadership is None or partition.refusal(leader_epoch):
        return NO_PREFERRED_REPLICA
    endpoints = client.view.endpoints
    own_endpoint = endpoints.get(services.broker_id)
    if own_endpoint is None or own_endpoint.rack == rack:
        return NO_PREFERRED_REPLICA
    best_replica, best_rank = NO_PREFERRED_REPLICA, (-1, -1, -1)
    for replica in leadership.isr:
        follower, endpoint = leadership.followers.get(replica), endpoints.get(replica)
        if follower is None or endpoint is None or endpoint.rack != rack or replica in leadership.unavailable_brokers:
            continue
        rank = (follower.end_offset, follower.caught_up_ms, replica)
        if follower.start_offset <= offset <= follower.end_offset and rank > best_rank:
            best_replica, best_rank = replica, rank
    if best_replica != NO_PREFERRED_REPLICA:
        services.storage.high_watermark_pushes.begin_or_extend(partition, best_replica, services.clock.monotonic_ms())
    return best_replica


def _leader_if_lagging(services: BrokerServices, client: ClientContext, partition: Partition) -> int:
    """Returns the leader, if this follower may lag behind it and the client can reach it."""
    lags = services.broker_id not in partition.isr or not services.storage.reaches_leader(partition.leader)
    return partition.leader if lags and partition.leader in client.view.endpoints else NO_PREFERRED_REPLICA


def read(
    request: FetchRequest,
    client: ClientContext,
    topics: list[FetchTopicRequest],
    limit_bytes: int,
    *,
    wait: bool,
    min_one_batch: bool = True,
) -> FetchReadResult:
    """Reads `topics`, a subset of the request's topics, in their order. With `min_one_batch` the first partition that
    has records returns a whole batch of any size. With `wait` the event loop waits for the disk.
    """
    storage, frame, version = request.session.storage, request.frame, request.version
    by_id, resolved_topics, isolation = request.names_topics_by_id, client.consume_topics, frame.isolation
    read_result = FetchReadResult()
    watched = read_result.watched
    remaining = limit_bytes
    by_rack = frame.rack_id != "" and reads_by_rack(client)
    needs_resolving = frame.max_bytes < 0 or version < ZSTD_FROM or by_rack
    for key, partitions_wanted in topics:
        topic = resolved_topics.get(key)
        if topic is None:
            topic = client.resolve_consume_topic(key, by_id)
        results: list[PartitionResult] = []
        topic_bytes = 0
        withheld_bytes = 0 if topic.limiter is None else remaining - fetch_cap_bytes((topic.limiter,), remaining)
        remaining -= withheld_bytes
        for partition_wanted in partitions_wanted:
            index, leader_epoch, offset, last_fetched_epoch, _, partition_bytes_max = partition_wanted
            if topic.error:
                results.append((index, topic.error, -1, -1, -1, 0, None))
                continue
            partition = topic.partitions.get(index)
            if partition is None:
                resolved = topic.find(index, storage)
                if isinstance(resolved, int):
                    read_result.must_respond |= resolved != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    results.append((index, resolved, -1, -1, -1, 0, None))
                    continue
                partition = resolved
            if (
                last_fetched_epoch >= 0
                or partition_bytes_max < 0
                or needs_resolving
                or (by_id and partition.topic_id != key)
            ):
                code, offset = _resolve_read(request, client, read_result, partition, key, partition_wanted, by_rack)
                if code:
                    read_result.must_respond = True
                    results.append((index, code, -1, -1, -1, 0, None))
                    continue
            code, high_watermark, stable_offset, start_offset, records, uncached = partition.read(
                offset,
                partition_bytes_max if partition_bytes_max < remaining else remaining,
                min_one_batch=min_one_batch,
                isolation=isolation,
                current_leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,
                may_wait=wait,
                from_follower=by_rack,
            )
            if isolation and records is not None and partition.log.may_have_aborts:
                code, records, uncached = list_aborted(read_result.aborted, key, partition, offset, records, wait)
            if records is not None:
                length = records.length
                remaining = remaining - length if remaining > length else 0
                min_one_batch = False
                topic_bytes += length
                results.append((index, code, high_watermark, stable_offset, start_offset, length, records))
            else:
                if uncached is not None:
                    read_result.uncached_reads.append(UncachedRead(partition, uncached))
                if code:
                    read_result.must_respond = True
                    code = downgraded(code, ApiKey.FETCH, version)
                results.append((index, code, high_watermark, stable_offset, start_offset, 0, None))
            watched.append(partition)
        remaining += withheld_bytes
        read_result.add_topic(key, results, topic_bytes, topic.usage, topic.limiter)
    return read_result


def _redirect_to_preferred_replica(
    request: FetchRequest,
    client: ClientContext,
    read_result: FetchReadResult,
    partition: Partition,
    key: bytes,
    requested_partition: FetchPartitionRequest,
) -> bool:
    """Returns True if the client should read from another replica, which is added to the result (WIRE-32)."""
    index, leader_epoch, offset, _, _, _ = requested_partition
    epoch = leader_epoch if leader_epoch >= 0 else NO_EPOCH
    services = request.session.services
    replica = preferred_replica(services, client, partition, request.frame.rack_id, epoch, offset)
    if replica == NO_PREFERRED_REPLICA:
        return False
    if read_result.preferred is None:
        read_result.preferred = {}
    read_result.preferred[key, index] = replica
    read_result.must_respond = True
    return True


def _resolve_read(
    request: FetchRequest,
    client: ClientContext,
    read_result: FetchReadResult,
    partition: Partition,
    key: bytes,
    requested_partition: FetchPartitionRequest,
    by_rack: bool,
) -> tuple[int, int]:
    """Returns an error code and the offset to read from, for the rare cases: a negative limit, records that the
    version's clients cannot read, the id of another topic, a client with a rack, a last fetched epoch.
    """
    _, _, offset, last_fetched_epoch, _, partition_bytes_max = requested_partition
    if min(request.frame.max_bytes, partition_bytes_max) < 0:
        return int(ErrorCode.UNKNOWN_SERVER_ERROR), offset
    if request.version < ZSTD_FROM and partition.config.batch_rules.codec == ZSTD:
        return int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), offset
    if request.names_topics_by_id and partition.topic_id != key:
        return int(ErrorCode.INCONSISTENT_TOPIC_ID), offset
    if by_rack and _redirect_to_preferred_replica(request, client, read_result, partition, key, requested_partition):
        return 0, partition.log_end_offset
    diverging = divergence(partition, last_fetched_epoch, offset) if last_fetched_epoch >= 0 else None
    if isinstance(diverging, int):
        return diverging, offset
    if diverging is None:
        return 0, offset
    read_result.must_respond = True
    read_result.diverging[key, partition.index] = diverging
    return 0, partition.log_end_offset


def divergence(partition: Partition, last_fetched_epoch: int, offset: int) -> tuple[int, int] | int | None:
    """Returns the leader epoch and end offset at which the log of a reader diverged from the leader's (REP-15); None if
    it did not. `last_fetched_epoch` is the epoch of the last batch that the reader has.

    Returns the error code OFFSET_OUT_OF_RANGE for an epoch that the leader never had (observed in Kafka 3.9.1).
    """
    code, epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
    if code:
        return None
    if epoch == UNDEFINED or end_offset == UNDEFINED:
        return int(ErrorCode.OFFSET_OUT_OF_RANGE)
    return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None
