"""Sends end markers to the leaders of a transaction's partitions until each has written them (TXN-12).

Markers for one broker are sent together, one request at a time. Partitions with slow followers use a separate
connection, so that they do not delay others. No state needs to survive a crash: the next coordinator of the transaction
sends its markers again (TXN-16), and a repeated marker does no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, Protocol

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from brokers.engine.replication.interfaces import CallLater
from brokers.engine.replication.peers import PeerUnavailable

log = structlog.get_logger(__name__)

VERSION: Final = 1
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 1_000
# Maximum numbers of transactions and partitions in one request; the rest is sent after its response.
TRANSACTIONS_PER_REQUEST_MAX: Final = 500
PARTITIONS_PER_REQUEST_MAX: Final = 10_000

# The partition has its marker, or cannot have one and never had a transaction.
_COMPLETED: Final = frozenset(
    {int(ErrorCode.NONE), int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# The partition has a later epoch of the producer than its coordinator and never accepts a marker of this transaction.
# As in Kafka the transaction does not complete; the next coordinator tries again. Markers are still sent to the other
# partitions, or their readers would wait behind an open transaction for as long.
_REFUSED: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
# Another broker coordinates the transaction and ends it.
_FENCED: Final = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)

# Writes the markers for partitions that this broker leads; the handler of WriteTxnMarkers uses the same function.
WriteLocally = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class Brokers(Protocol):
    """Sender of requests to other brokers, implemented by `peers.Peers`."""

    async def request(self, broker_id: int, api_key: int, version: int, message: Any) -> Any: ...


class _PendingTransaction:
    """Decided transaction: `unconfirmed` are partitions without a confirmed marker, `attempts` counts the retries."""

    __slots__ = ("attempts", "is_dropped", "markers", "shard", "unconfirmed")

    def __init__(self, shard: int, markers: SendMarkers) -> None:
        self.shard = shard
        self.markers = markers
        self.unconfirmed = set(markers.partitions)
        self.attempts = 0
        self.is_dropped = False

    @property
    def retry_ms(self) -> int:
        return min(RETRY_MS_MIN << min(self.attempts, 10), RETRY_MS_MAX)


# Partitions of each transaction whose markers wait for one destination.
_Batch = dict[_PendingTransaction, set[PartitionKey]]
# (broker id, whether it is the connection for slow partitions)
_Destination = tuple[int, bool]


class MarkerLink:
    """Sends the markers of decided transactions.

    `report(shard, markers, partitions)` reports completed partitions, perhaps none, and returns whether this broker is
    still the coordinator; if not, the new one sends the markers. It returns None if that is unknown at the moment. Then
    the report and the marker are repeated: the transaction is not complete before the report, and a repeated marker
    does no harm.

    `image` returns the current image, and `slow_brokers` has connections separate from those of `brokers`. Everything
    runs in the event loop's thread, and `report` is never called from inside `send`.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        image: Callable[[], ClusterImage],
        brokers: Brokers,
        slow_brokers: Brokers,
        write_locally: WriteLocally,
        report: Callable[[int, SendMarkers, Collection[PartitionKey]], bool | None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        call_later: CallLater,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._brokers = {False: brokers, True: slow_brokers}
        self._write_locally = write_locally
        self._report = report
        self._spawn = spawn
        self._call_later = call_later
        self._transaction_by_id: dict[str, _PendingTransaction] = {}
        # Partitions per destination; a destination in here has a running task.
        self._batch_by_destination: dict[_Destination, _Batch] = {}
        self._slow_partitions: set[PartitionKey] = set()

    @property
    def transactions(self) -> int:
        """Number of transactions that are not complete."""
        return len(self._transaction_by_id)

    def send(self, shard: int, markers: SendMarkers) -> None:
        """Starts sending; replaces pending markers of the same transactional id."""
        replaced = self._transaction_by_id.get(markers.transactional_id)
        if replaced is not None:
            replaced.is_dropped = True
        transaction = self._transaction_by_id[markers.transactional_id] = _PendingTransaction(shard, markers)
        self._call_later(0, lambda: self._route(transaction, markers.partitions))

    # -- routing -------------------------------------------------------------------------------------------------------

    def _route(self, transaction: _PendingTransaction, partitions: Iterable[PartitionKey]) -> None:
        """Queues partitions for their current leaders; deleted ones are complete.

        A partition without a leader waits, and so does one of a topic that cannot be read: it may exist and would keep
        its readers waiting for ever.
        """
        if transaction.is_dropped:
            return
        image = self._image()
        deleted: list[PartitionKey] = []
        leaderless: list[PartitionKey] = []
        # Sorted, because the order of a set differs between processes.
        for partition in sorted(partitions):
            topic = image.topics.get(partition[0])
            if topic is None or topic.deleting or not 0 <= partition[1] < len(topic.partitions):
                (deleted if topic is not None or image.is_topic_deleted(partition[0]) else leaderless).append(partition)
                continue
            leader = topic.partitions[partition[1]].leader
            if leader == self._broker_id or leader in image.brokers:
                self._enqueue(leader, transaction, partition)
            else:
                leaderless.append(partition)
        self._slow_partitions.difference_update(deleted)
        if deleted or not transaction.unconfirmed:
            self._on_written(transaction, deleted)
        if leaderless:
            self._retry_later(transaction, leaderless)

    def _enqueue(self, broker_id: int, transaction: _PendingTransaction, partition: PartitionKey) -> None:
        destination = broker_id, partition in self._slow_partitions
        batch = self._batch_by_destination.get(destination)
        if batch is None:
            batch = self._batch_by_destination[destination] = {}
            self._spawn(self._send_batches(destination))
        batch.setdefault(transaction, set()).add(partition)

    def _retry_later(self, transaction: _PendingTransaction, partitions: Collection[PartitionKey]) -> None:
        if transaction.is_dropped:
            return
        if self._report(transaction.shard, transaction.markers, ()) is False:
            self._forget(transaction)
            return
        delay_ms = transaction.retry_ms
        transaction.attempts += 1
        self._call_later(delay_ms, lambda: self._route(transaction, partitions))

    # -- requests to one broker ----------------------------------------------------------------------------------------

    async def _send_batches(self, destination: _Destination) -> None:
        """Sends requests to one destination until no marker is pending for it."""
        while True:
            batch = self._next_batch(destination)
            if not batch:
                del self._batch_by_destination[destination]
                return
            if destination[0] == self._broker_id:
                # Local writes share no connection, so each transaction waits only for the followers of its own
                # partitions.
                for transaction, partitions in batch.items():
                    self._spawn(self._send_request(destination, {transaction: partitions}))
            else:
                await self._send_request(destination, batch)

    async def _send_request(self, destination: _Destination, batch: _Batch) -> None:
        broker_id, is_slow = destination
        try:
            if broker_id == self._broker_id:
                response = await self._write_locally(_build_request(batch))
            else:
                brokers = self._brokers[is_slow]
                response = await brokers.request(broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, _build_request(batch))
            self._on_response(batch, response)
        except PeerUnavailable as reason:
            log.info("markers_not_sent", broker=broker_id, transactions=len(batch), reason=str(reason))
            for transaction, partitions in batch.items():
                self._retry_later(transaction, partitions)
        # a programming error with one transaction must not leave the markers of others unsent for ever
        except Exception:
            log.exception("markers_failed", broker=broker_id, transactions=len(batch))
            self._call_later(RETRY_MS_MAX, lambda: self._reroute(batch))

    def _reroute(self, batch: _Batch) -> None:
        """Retries partitions that are still pending; the next transaction of completed ones may have begun."""
        for transaction, partitions in batch.items():
            if unconfirmed := partitions & transaction.unconfirmed:
                self._retry_later(transaction, unconfirmed)

    def _next_batch(self, destination: _Destination) -> _Batch:
        """Removes and returns the markers for the next request."""
        pending = self._batch_by_destination[destination]
        batch: _Batch = {}
        producer_ids: set[int] = set()
        partitions_max = PARTITIONS_PER_REQUEST_MAX
        for transaction in tuple(pending):
            if transaction.is_dropped:
                del pending[transaction]
                continue
            # A response distinguishes markers by producer id.
            if transaction.markers.producer_id in producer_ids:
                continue
            if batch and (len(batch) == TRANSACTIONS_PER_REQUEST_MAX or partitions_max < len(pending[transaction])):
                break
            producer_ids.add(transaction.markers.producer_id)
            partitions_max -= len(pending[transaction])
            batch[transaction] = pending.pop(transaction)
        return batch

    def _on_response(self, batch: _Batch, response: WriteTxnMarkersResponse) -> None:
        errors: dict[tuple[int, str, int], int] = {}
        for marker in response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    errors[marker.producer_id, topic.name, partition.partition_index] = partition.error_code
        for transaction, partitions in batch.items():
            if transaction.is_dropped:
                continue
            missing_code = int(ErrorCode.REQUEST_TIMED_OUT)
            codes = {key: errors.get((transaction.markers.producer_id, *key), missing_code) for key in partitions}
            self._on_codes(transaction, codes)

    def _on_codes(self, transaction: _PendingTransaction, codes: dict[PartitionKey, int]) -> None:
        completed = [partition for partition, code in codes.items() if code in _COMPLETED]
        refused = [partition for partition, code in codes.items() if code == _REFUSED]
        to_retry = [
            partition for partition, code in codes.items() if code not in _COMPLETED and code not in (_REFUSED, _FENCED)
        ]
        self._slow_partitions.difference_update(codes)
        self._slow_partitions.update(partition for partition in to_retry if codes[partition] == _TIMED_OUT)
        if completed:
            self._on_written(transaction, completed)
        if refused or _FENCED in codes.values():
            log.warning(
                "markers_refused",
                transactional_id=transaction.markers.transactional_id,
                partitions=sorted(partition for partition, code in codes.items() if code in (_REFUSED, _FENCED)),
                codes=sorted({_REFUSED, _FENCED}.intersection(codes.values())),
            )
        if _FENCED in codes.values():
            self._forget(transaction)
        if to_retry and not transaction.is_dropped:
            self._retry_later(transaction, to_retry)
        transaction.unconfirmed.difference_update(refused)
        if not transaction.unconfirmed and not transaction.is_dropped:
            self._forget(transaction)

    # -- completion ----------------------------------------------------------------------------------------------------

    def _on_written(self, transaction: _PendingTransaction, partitions: Collection[PartitionKey]) -> None:
        is_coordinator = self._report(transaction.shard, transaction.markers, partitions)
        if is_coordinator is None:
            self._retry_later(transaction, partitions)
            return
        transaction.unconfirmed.difference_update(partitions)
        if not is_coordinator or not transaction.unconfirmed:
            self._forget(transaction)

    def _forget(self, transaction: _PendingTransaction) -> None:
        transaction.is_dropped = True
        if self._transaction_by_id.get(transaction.markers.transactional_id) is transaction:
            del self._transaction_by_id[transaction.markers.transactional_id]


def _build_request(batch: _Batch) -> WriteTxnMarkersRequest:
    markers = []
    for transaction, partitions in batch.items():
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        markers.append(
            WritableTxnMarker(
                producer_id=transaction.markers.producer_id,
                producer_epoch=transaction.markers.producer_epoch,
                transaction_result=transaction.markers.committed,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
                ],
                coordinator_epoch=transaction.markers.coordinator_epoch,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)
