"""What all fetchers of a broker share, and how they introduce themselves to leaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from brokers.engine.clock import Clock
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.protocol.fast_codec_replica_fetch import ReplicaFetchEncoder
from brokers.engine.replication.interfaces import CallLater, Connect
from brokers.engine.replication.persisted_log_start_offsets import PersistLogStartOffsets
from brokers.engine.throttling.replication import ReplicationThrottle

# `replica.fetch.min.bytes`, `replica.fetch.response.max.bytes`. An answer is appended in one turn of the loop, and who
# waits for its records to be replicated waits for the answer under way: Kafka's 10 MB take too long.
BYTES_MIN: Final = 1
RESPONSE_BYTES_MAX: Final = 2_097_152


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """`broker_epoch` answers the incarnation in which this broker is registered, another one after every
    registration.
    """

    broker_id: int
    broker_epoch: Callable[[], int]
    table: PartitionTable
    clock: Clock
    connect: Connect
    call_later: CallLater
    throttle: ReplicationThrottle
    persist_log_start_offsets: PersistLogStartOffsets

    @property
    def client_id(self) -> str:
        return f"broker-{self.broker_id}-fetcher"

    def encoder(self, broker_epoch: int) -> ReplicaFetchEncoder:
        """Requests of this broker in one incarnation."""
        return ReplicaFetchEncoder(
            client_id=self.client_id,
            replica_id=self.broker_id,
            replica_epoch=broker_epoch,
            min_bytes=BYTES_MIN,
            response_bytes_max=RESPONSE_BYTES_MAX,
        )
