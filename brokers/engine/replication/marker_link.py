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
_DONE: Final = frozenset(
    {int(ErrorCode.NONE), int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# The partition has a later epoch of the producer than its coordinator and never accepts a marker of this transaction.
# As in Kafka the transaction does not complete; the next coordinator tries again. Markers are still sent to the other
# partitions, or their readers would wait behind an open transaction for as long.
_REFUSED: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
# Another broker coordinates the transaction and ends it.
_FENCED: Final = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_LATE: Final = int(ErrorCode.REQUEST_TIMED_OUT)

# Writes the markers for partitions that this broker leads; the handler of WriteTxnMarkers uses the same function.
WriteHere = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class Brokers(Protocol):
    """Sender of requests to other brokers, implemented by `peers.Peers`."""

    async def request(self, broker_id: int, api_key: int, version: int, message: Any) -> Any: ...


class _Order:
    """Pending partitions of one decided transaction: `owed` have no confirmed marker. `attempts` counts the retries."""

    __slots__ = ("attempts", "dropped", "markers", "owed", "shard")

    def __init__(self, shard: int, markers: SendMarkers) -> None:
        self.shard = shard
        self.markers = markers
        self.owed = set(markers.partitions)
        self.attempts = 0
        self.dropped = False

    @property
    def retry_ms(self) -> int:
        return min(RETRY_MS_MIN << min(self.attempts, 10), RETRY_MS_MAX)


# Partitions of each transaction whose markers wait for one destination.
_Load = dict[_Order, set[PartitionKey]]
# (broker id, whether it is the connection for slow partitions)
_Way = tuple[int, bool]


class MarkerLink:
    """Sends the markers of decided transactions.

    `report(shard, markers, partitions)` reports completed partitions, perhaps none, and returns whether this broker is
    still the coordinator; if not, the new one sends the markers. It returns None if that is unknown at the moment. Then
    the report and the marker are repeated: the transaction is not complete before the report, and a repeated marker
    does no harm.

    `image` returns the current image, and `late_brokers` has connections separate from those of `brokers`. Everything
    runs in the event loop's thread, and `report` is never called from inside `send`.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        image: Callable[[], ClusterImage],
        brokers: Brokers,
        late_brokers: Brokers,
        write_here: WriteHere,
        report: Callable[[int, SendMarkers, Collection[PartitionKey]], bool | None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        call_later: CallLater,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._brokers = {False: brokers, True: late_brokers}
        self._write_here = write_here
        self._report = report
        self._spawn = spawn
        self._call_later = call_later
        self._orders: dict[str, _Order] = {}
        # Partitions per destination; a destination in here has a running task.
        self._loads: dict[_Way, _Load] = {}
        self._late: set[PartitionKey] = set()

    @property
    def transactions(self) -> int:
        """Number of transactions that are not complete."""
        return len(self._orders)

    def send(self, shard: int, markers: SendMarkers) -> None:
        """Starts sending; replaces pending markers of the same transactional id."""
        before = self._orders.get(markers.transactional_id)
        if before is not None:
            before.dropped = True
        order = self._orders[markers.transactional_id] = _Order(shard, markers)
        self._call_later(0, lambda: self._route(order, markers.partitions))

    # -- routing -------------------------------------------------------------------------------------------------------

    def _route(self, order: _Order, partitions: Iterable[PartitionKey]) -> None:
        """Queues partitions for their current leaders; deleted ones are complete.

        A partition without a leader waits, and so does one of a topic that cannot be read: it may exist and would keep
        its readers waiting for ever.
        """
        if order.dropped:
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
                self._enqueue(leader, order, partition)
            else:
                leaderless.append(partition)
        self._late.difference_update(deleted)
        if deleted or not order.owed:
            self._done(order, deleted)
        if leaderless:
            self._retry_later(order, leaderless)

    def _enqueue(self, broker_id: int, order: _Order, partition: PartitionKey) -> None:
        way = broker_id, partition in self._late
        load = self._loads.get(way)
        if load is None:
            load = self._loads[way] = {}
            self._spawn(self._serve(way))
        load.setdefault(order, set()).add(partition)

    def _retry_later(self, order: _Order, partitions: Collection[PartitionKey]) -> None:
        if order.dropped:
            return
        if self._report(order.shard, order.markers, ()) is False:
            self._forget(order)
            return
        delay_ms = order.retry_ms
        order.attempts += 1
        self._call_later(delay_ms, lambda: self._route(order, partitions))

    # -- requests to one broker ----------------------------------------------------------------------------------------

    async def _serve(self, way: _Way) -> None:
        """Sends requests to one destination until no marker is pending for it."""
        while True:
            load = self._take(way)
            if not load:
                del self._loads[way]
                return
            if way[0] == self._broker_id:
                # Local writes share no connection, so each transaction waits only for the followers of its own
                # partitions.
                for order, partitions in load.items():
                    self._spawn(self._send_request(way, {order: partitions}))
            else:
                await self._send_request(way, load)

    async def _send_request(self, way: _Way, load: _Load) -> None:
        broker_id, late = way
        try:
            if broker_id == self._broker_id:
                response = await self._write_here(_request(load))
            else:
                brokers = self._brokers[late]
                response = await brokers.request(broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, _request(load))
            self._on_response(load, response)
        except PeerUnavailable as reason:
            log.info("markers_not_sent", broker=broker_id, transactions=len(load), reason=str(reason))
            for order, partitions in load.items():
                self._retry_later(order, partitions)
        # a programming error with one transaction must not leave the markers of others unsent for ever
        except Exception:
            log.exception("markers_failed", broker=broker_id, transactions=len(load))
            self._call_later(RETRY_MS_MAX, lambda: self._reroute(load))

    def _reroute(self, load: _Load) -> None:
        """Retries partitions that are still pending; the next transaction of completed ones may have begun."""
        for order, partitions in load.items():
            if left := partitions & order.owed:
                self._retry_later(order, left)

    def _take(self, way: _Way) -> _Load:
        """Removes and returns the markers for the next request."""
        waiting = self._loads[way]
        taken: _Load = {}
        producer_ids: set[int] = set()
        room = PARTITIONS_PER_REQUEST_MAX
        for order in tuple(waiting):
            if order.dropped:
                del waiting[order]
                continue
            # A response distinguishes markers by producer id.
            if order.markers.producer_id in producer_ids:
                continue
            if taken and (len(taken) == TRANSACTIONS_PER_REQUEST_MAX or room < len(waiting[order])):
                break
            producer_ids.add(order.markers.producer_id)
            room -= len(waiting[order])
            taken[order] = waiting.pop(order)
        return taken

    def _on_response(self, load: _Load, response: WriteTxnMarkersResponse) -> None:
        errors: dict[tuple[int, str, int], int] = {}
        for marker in response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    errors[marker.producer_id, topic.name, partition.partition_index] = partition.error_code
        for order, partitions in load.items():
            if order.dropped:
                continue
            missing = int(ErrorCode.REQUEST_TIMED_OUT)
            codes = {key: errors.get((order.markers.producer_id, *key), missing) for key in partitions}
            self._on_codes(order, codes)

    def _on_codes(self, order: _Order, codes: dict[PartitionKey, int]) -> None:
        done = [partition for partition, code in codes.items() if code in _DONE]
        refused = [partition for partition, code in codes.items() if code == _REFUSED]
        again = [
            partition for partition, code in codes.items() if code not in _DONE and code not in (_REFUSED, _FENCED)
        ]
        self._late.difference_update(codes)
        self._late.update(partition for partition in again if codes[partition] == _LATE)
        if done:
            self._done(order, done)
        if refused or _FENCED in codes.values():
            log.warning(
                "markers_refused",
                transactional_id=order.markers.transactional_id,
                partitions=sorted(partition for partition, code in codes.items() if code in (_REFUSED, _FENCED)),
                codes=sorted({_REFUSED, _FENCED}.intersection(codes.values())),
            )
        if _FENCED in codes.values():
            self._forget(order)
        if again and not order.dropped:
            self._retry_later(order, again)
        order.owed.difference_update(refused)
        if not order.owed and not order.dropped:
            self._forget(order)

    # -- completion ----------------------------------------------------------------------------------------------------

    def _done(self, order: _Order, partitions: Collection[PartitionKey]) -> None:
        wanted = self._report(order.shard, order.markers, partitions)
        if wanted is None:
            self._retry_later(order, partitions)
            return
        order.owed.difference_update(partitions)
        if not wanted or not order.owed:
            self._forget(order)

    def _forget(self, order: _Order) -> None:
        order.dropped = True
        if self._orders.get(order.markers.transactional_id) is order:
            del self._orders[order.markers.transactional_id]


def _request(load: _Load) -> WriteTxnMarkersRequest:
    markers = []
    for order, partitions in load.items():
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        markers.append(
            WritableTxnMarker(
                producer_id=order.markers.producer_id,
                producer_epoch=order.markers.producer_epoch,
                transaction_result=order.markers.committed,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()
                ],
                coordinator_epoch=order.markers.coordinator_epoch,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)
