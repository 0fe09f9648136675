"""Tells the leaders of a transaction's partitions how it ended (TXN-12), until each of them knows.

What is owed to one broker travels together, one request at a time; partitions whose followers keep it waiting have a
connection of their own, so that they hold up nobody else. Nothing here has to survive a crash: whoever coordinates the
transaction next sends its markers again (TXN-16), and a marker that comes twice does no harm.
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
# One request; what is left follows when it is answered.
TRANSACTIONS_PER_REQUEST_MAX: Final = 500
PARTITIONS_PER_REQUEST_MAX: Final = 10_000

# The partition has its marker, or cannot have one and never had a transaction.
_DONE: Final = frozenset(
    {int(ErrorCode.NONE), int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), int(ErrorCode.UNSUPPORTED_VERSION)}
)
# A partition knows a later epoch of the producer than its coordinator: a marker of this transaction will never be taken
# there. As in Kafka the transaction is not said to be over; the next coordinator asks once more. The other partitions
# are still told, or their readers would stand before an open transaction for as long.
_REFUSED: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
# Somebody else coordinates it: it is theirs to end what is open.
_FENCED: Final = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_LATE: Final = int(ErrorCode.REQUEST_TIMED_OUT)

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


_Load = dict[_Order, set[PartitionKey]]
# A broker, and whether it is by the connection for partitions that are late.
_Way = tuple[int, bool]


class MarkerLink:
    """`report(shard, markers, partitions)` hands back what is done, perhaps nothing, and answers whether it is still
    wanted here; if not, whoever coordinates the transaction sends its markers. None: nobody can take it at the moment,
    and whether somebody else coordinates by now is not known. What was done then is told once more, and so is its
    partition: until it is reported the transaction is not over, and a marker that comes twice does no harm.

    `image` answers the current image, `late_brokers` has connections beside those of `brokers`. Everything runs on
    the loop's thread, and nothing is reported from inside `send`.
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
        # Whoever is in here is being spoken to.
        self._loads: dict[_Way, _Load] = {}
        self._late: set[PartitionKey] = set()

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

    def _route(self, order: _Order, partitions: Iterable[PartitionKey]) -> None:
        """To the current leaders. A partition that was deleted is done; one without a leader waits, and one of a topic
        about which nothing is understood: it may be there, and would keep its readers waiting for ever.
        """
        if order.dropped:
            return
        image = self._image()
        gone: list[PartitionKey] = []
        homeless: list[PartitionKey] = []
        # In order: a set would have another one in every process.
        for partition in sorted(partitions):
            topic = image.topics.get(partition[0])
            if topic is None or topic.deleting or not 0 <= partition[1] < len(topic.partitions):
                (gone if topic is not None or image.has_lost_topic(partition[0]) else homeless).append(partition)
                continue
            leader = topic.partitions[partition[1]].leader
            if leader == self._broker_id or leader in image.brokers:
                self._enqueue(leader, order, partition)
            else:
                homeless.append(partition)
        self._late.difference_update(gone)
        if gone or not order.owed:
            self._done(order, gone)
        if homeless:
            self._again(order, homeless)

    def _enqueue(self, broker_id: int, order: _Order, partition: PartitionKey) -> None:
        way = broker_id, partition in self._late
        load = self._loads.get(way)
        if load is None:
            load = self._loads[way] = {}
            self._spawn(self._serve(way))
        load.setdefault(order, set()).add(partition)

    def _again(self, order: _Order, partitions: Collection[PartitionKey]) -> None:
        if order.dropped:
            return
        if self._report(order.shard, order.markers, ()) is False:
            self._forget(order)
            return
        delay_ms = order.retry_ms
        order.attempts += 1
        self._call_later(delay_ms, lambda: self._route(order, partitions))

    # -- one broker ----------------------------------------------------------------------------------------------------

    async def _serve(self, way: _Way) -> None:
        """Until nothing is owed to this broker."""
        while True:
            load = self._take(way)
            if not load:
                del self._loads[way]
                return
            if way[0] == self._broker_id:
                # No connection to share: a transaction waits for the followers of its own partitions alone.
                for order, partitions in load.items():
                    self._spawn(self._tell(way, {order: partitions}))
            else:
                await self._tell(way, load)

    async def _tell(self, way: _Way, load: _Load) -> None:
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
                self._again(order, partitions)
        except Exception:  # our own mistake with one transaction must not leave the others' partitions untold for ever
            log.exception("markers_failed", broker=broker_id, transactions=len(load))
            self._call_later(RETRY_MS_MAX, lambda: self._reroute(load))

    def _reroute(self, load: _Load) -> None:
        """Never what is done: its next transaction may have begun."""
        for order, partitions in load.items():
            if left := partitions & order.owed:
                self._again(order, left)

    def _take(self, way: _Way) -> _Load:
        """The next request's share of what is owed."""
        waiting = self._loads[way]
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
            codes = {
                partition: errors.get((order.markers.producer_id, *partition), missing) for partition in partitions
            }
            self._on_codes(order, codes)

    def _on_codes(self, order: _Order, codes: dict[PartitionKey, int]) -> None:
        done = [item for item, code in codes.items() if code in _DONE]
        refused = [item for item, code in codes.items() if code == _REFUSED]
        again = [item for item, code in codes.items() if code not in _DONE and code not in (_REFUSED, _FENCED)]
        self._late.difference_update(codes)
        self._late.update(item for item in again if codes[item] == _LATE)
        if done:
            self._done(order, done)
        if refused or _FENCED in codes.values():
            log.warning(
                "markers_refused",
                transactional_id=order.markers.transactional_id,
                partitions=sorted(item for item, code in codes.items() if code in (_REFUSED, _FENCED)),
                codes=sorted({_REFUSED, _FENCED}.intersection(codes.values())),
            )
        if _FENCED in codes.values():
            self._forget(order)
        if again and not order.dropped:
            self._again(order, again)
        order.owed.difference_update(refused)
        if not order.owed and not order.dropped:
            self._forget(order)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _done(self, order: _Order, partitions: Collection[PartitionKey]) -> None:
        wanted = self._report(order.shard, order.markers, partitions)
        if wanted is None:
            self._again(order, partitions)
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
