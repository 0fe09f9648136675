"""Context that all fetchers of a broker share, with the fixed fields of their requests."""

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

# Minimum and maximum size of a response (`replica.fetch.min.bytes`, `replica.fetch.response.max.bytes`). A response is
# appended without yielding to the event loop, and producers wait for the response in flight, for which Kafka's 10 MB
# would take too long.
BYTES_MIN: Final = 1
RESPONSE_BYTES_MAX: Final = 2_097_152


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """Shared context of fetchers; `broker_epoch` returns the current incarnation of this broker, new after every
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
        """Returns an encoder of fetch requests of this broker in one incarnation."""
        return ReplicaFetchEncoder(
            client_id=self.client_id,
            replica_id=self.broker_id,
            replica_epoch=broker_epoch,
            min_bytes=BYTES_MIN,
            response_bytes_max=RESPONSE_BYTES_MAX,
        )
