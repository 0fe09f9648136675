"""Tells the leaders of a transaction's partitions how it ended (TXN-12), until each of them knows.

What is owed to one broker travels together, one request at a time. Nothing here has to survive a crash: whoever
coordinates the transaction next sends its markers again (TXN-16), and a marker that comes twice does no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, Protocol

import structlog

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.coordinators.transactions.metadata import Partition
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from brokers.engine.replication.peers import PeerUnavailable
from brokers.engine.replication.ports import CallLater

log = structlog.get_logger(__name__)

VERSION: Final = 1
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 1_000
# One request; what is left follows when it is answered.
TRANSACTIONS_PER_REQUEST_MAX: Final = 500
PARTITIONS_PER_REQUEST_MAX: Final = 10_000

# The partition has its marker, or cannot have one and never had a transaction.
_DONE: Final = frozenset(
    {int(ErrorCode.NONE), int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# Somebody else has gone on with this producer, or coordinates it: it is theirs to end what is open.
_STOP: Final = frozenset({int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)})

# Writes the markers that this broker leads the partitions of; the handler of WriteTxnMarkers does the same.
WriteHere = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class Brokers(Protocol):
    """`peers.Peers` fits."""

    async def request(self, broker_id: int, api_key: int, version: int, message: Any) -> Any: ...


class _Order:
    """What one decided transaction still owes. `attempts` counts rounds in which something was refused."""

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


_Load = dict[_Order, set[Partition]]


class MarkerLink:
    """`report(shard, markers, partitions)` hands back what is done, perhaps nothing, and answers whether it is still
    wanted here; if not, whoever coordinates the transaction sends its markers.

    `image` answers the current picture. Everything runs on the loop's thread, and nothing is reported from inside
    `send`.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        image: Callable[[], ClusterImage],
        brokers: Brokers,
        write_here: WriteHere,
        report: Callable[[int, SendMarkers, Collection[Partition]], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        call_later: CallLater,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._brokers = brokers
        self._write_here = write_here
        self._report = report
        self._spawn = spawn
        self._call_later = call_later
        self._orders: dict[str, _Order] = {}
        # By broker; a broker that is in here is being spoken to.
        self._loads: dict[int, _Load] = {}

    @property
    def transactions(self) -> int:
        """How many are not done."""
        return len(self._orders)

    def send(self, shard: int, markers: SendMarkers) -> None:
        """Begins. Replaces what was to be sent for the same transactional id."""
        before = self._orders.get(markers.transactional_id)
        if before is not None:
            before.dropped = True
        order = self._orders[markers.transactional_id] = _Order(shard, markers)
        self._call_later(0, lambda: self._route(order, markers.partitions))

    # -- where to ------------------------------------------------------------------------------------------------------

    def _route(self, order: _Order, partitions: Iterable[Partition]) -> None:
        """To the current leaders. A partition that was deleted is done; one without a leader waits."""
        if order.dropped:
            return
        image = self._image()
        gone: list[Partition] = []
        homeless: list[Partition] = []
        # In order: a set would have another one in every process.
        for partition in sorted(partitions):
            topic = image.topics.get(partition[0])
            if topic is None or topic.deleting or not 0 <= partition[1] < len(topic.partitions):
                gone.append(partition)
                continue
            leader = topic.partitions[partition[1]].leader
            if leader == self._broker_id or leader in image.brokers:
                self._enqueue(leader, order, partition)
            else:
                homeless.append(partition)
        if gone or not order.owed:
            self._done(order, gone)
        if homeless:
            self._again(order, homeless)

    def _enqueue(self, broker_id: int, order: _Order, partition: Partition) -> None:
        load = self._loads.get(broker_id)
        if load is None:
            load = self._loads[broker_id] = {}
            self._spawn(self._serve(broker_id))
        load.setdefault(order, set()).add(partition)

    def _again(self, order: _Order, partitions: Collection[Partition]) -> None:
        if not self._report(order.shard, order.markers, ()):
            self._forget(order)
            return
        delay_ms = order.retry_ms
        order.attempts += 1
        self._call_later(delay_ms, lambda: self._route(order, partitions))

    # -- one broker ----------------------------------------------------------------------------------------------------

    async def _serve(self, broker_id: int) -> None:
        """Until nothing is owed to this broker."""
        while True:
            load = self._take(broker_id)
            if not load:
                del self._loads[broker_id]
                return
            if broker_id == self._broker_id:
                # No connection to share: a partition whose followers are slow holds up nobody.
                self._spawn(self._serve_here(load))
                continue
            try:
                response = await self._brokers.request(broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, _request(load))
            except PeerUnavailable as reason:
                log.info("markers_not_sent", broker=broker_id, transactions=len(load), reason=str(reason))
                for order, partitions in load.items():
                    self._again(order, partitions)
            else:
                self._on_response(load, response)

    async def _serve_here(self, load: _Load) -> None:
        self._on_response(load, await self._write_here(_request(load)))

    def _take(self, broker_id: int) -> _Load:
        """The next request's share of what is owed."""
        waiting = self._loads[broker_id]
        taken: _Load = {}
        producer_ids: set[int] = set()
        room = PARTITIONS_PER_REQUEST_MAX
        for order in tuple(waiting):
            if order.dropped:
                del waiting[order]
                continue
            # An answer tells markers apart by their producer id.
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
                for line in topic.partitions:
                    errors[marker.producer_id, topic.name, line.partition_index] = line.error_code
        for order, partitions in load.items():
            if order.dropped:
                continue
            missing = int(ErrorCode.REQUEST_TIMED_OUT)
            codes = {one: errors.get((order.markers.producer_id, *one), missing) for one in partitions}
            self._on_codes(order, codes)

    def _on_codes(self, order: _Order, codes: dict[Partition, int]) -> None:
        done = [one for one, code in codes.items() if code in _DONE]
        stopped = [one for one, code in codes.items() if code in _STOP]
        again = [one for one, code in codes.items() if code not in _DONE and code not in _STOP]
        if done:
            self._done(order, done)
        if stopped:
            log.warning(
                "markers_refused",
                transactional_id=order.markers.transactional_id,
                partitions=sorted(stopped),
                codes=sorted({codes[one] for one in stopped}),
            )
            self._forget(order)
        if again and not order.dropped:
            self._again(order, again)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _done(self, order: _Order, partitions: Collection[Partition]) -> None:
        order.owed.difference_update(partitions)
        wanted = self._report(order.shard, order.markers, partitions)
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
