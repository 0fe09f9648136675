"""Choice of the replica that a client with a rack reads from (KIP-392, WIRE-32).

The leader names an in-sync follower in the client's rack, which is what Kafka's `RackAwareReplicaSelector` does. A
follower that is no longer in sync, or does not reach the leader, names the leader; Kafka's followers go on serving such
clients until these ask the leader again, minutes later.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.progress import FollowerProgress

# The client reads from the broker that it asked.
NO_PREFERRED_REPLICA: Final = -1


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
        if _has_offset(follower, offset) and rank > best_rank:
            best_replica, best_rank = replica, rank
    if best_replica != NO_PREFERRED_REPLICA:
        services.storage.high_watermark_pushes.begin_or_extend(partition, best_replica, services.clock.monotonic_ms())
    return best_replica


def _has_offset(follower: FollowerProgress, offset: int) -> bool:
    return follower.start_offset <= offset <= follower.end_offset


def _leader_if_lagging(services: BrokerServices, client: ClientContext, partition: Partition) -> int:
    """Returns the leader, if this follower may lag behind it and the client can reach it."""
    lags = services.broker_id not in partition.isr or not services.storage.reaches_leader(partition.leader)
    return partition.leader if lags and partition.leader in client.view.endpoints else NO_PREFERRED_REPLICA
