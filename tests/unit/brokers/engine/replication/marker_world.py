"""A cluster for marker tests: leaders with prepared responses, which record their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_request
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from brokers.engine.replication.marker_link import MarkerLink
from brokers.engine.replication.peers import PeerUnavailable

OWN, OTHER, THIRD = 1, 2, 3
TIMEOUT_S = 10.0


def topic(name: str, *leaders: int, deleting: bool = False) -> TopicImage:
    partitions = tuple(PartitionImage(index, (leader,), leader, 0, (leader,)) for index, leader in enumerate(leaders))
    return TopicImage(name, name, None, name.encode().ljust(16), partitions, {}, deleting=deleting)


def image(*topics: TopicImage, brokers: Collection[int] = (OWN, OTHER, THIRD)) -> ClusterImage:
    infos = {id: BrokerInfo(id, "127.0.0.1", 24_000 + id, 25_000 + id, None, id) for id in brokers}
    return ClusterImage("test", brokers=infos, topics={shown.name: shown for shown in topics})


def markers(name: str, *partitions: PartitionKey, producer_id: int = 7, committed: bool = True) -> SendMarkers:
    return SendMarkers(name, producer_id, 3, 5, committed, frozenset(partitions))


class World:
    """Environment of a marker link.

    `codes` are the next results of partitions, 0 if there is none. `said` are (broker, transactional id, partitions) of
    each request, in order.
    """

    def __init__(self) -> None:
        self.image = image(topic("a", OWN, OTHER), topic("b", OTHER, THIRD))
        self.codes: dict[PartitionKey, list[int | None]] = {}
        self.unavailable: dict[int, int] = {}
        self.said: list[tuple[int, int, set[PartitionKey]]] = []
        self.said_late: list[set[PartitionKey]] = []
        self.mistakes = 0
        self.done: dict[str, set[PartitionKey]] = {}
        self.wanted = True
        self.ignored_answers = 0
        self.held: asyncio.Event | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()
        self.link = MarkerLink(
            broker_id=OWN,
            image=lambda: self.image,
            brokers=self,
            slow_brokers=_Late(self),
            write_locally=lambda request: self._write(OWN, request),
            report=self._report,
            spawn=self._spawn,
            call_later=self._call_later,
        )

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _call_later(self, delay_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def request(self, broker_id: int, api_key: int, version: int, message: WriteTxnMarkersRequest) -> Any:
        assert api_key == ApiKey.WRITE_TXN_MARKERS
        encode_request(api_key, version, message)
        return await self._write(broker_id, message)

    async def late_request(self, broker_id: int, message: WriteTxnMarkersRequest) -> Any:
        self.said_late.append(
            {(marked.name, i) for m in message.markers for marked in m.topics for i in marked.partition_indexes}
        )
        return await self._write(broker_id, message, held=False)

    async def _write(
        self, broker_id: int, request: WriteTxnMarkersRequest, *, held: bool = True
    ) -> WriteTxnMarkersResponse:
        for marker in request.markers:
            named = {(marked.name, index) for marked in marker.topics for index in marked.partition_indexes}
            self.said.append((broker_id, marker.producer_id, named))
        if self.held is not None and held:
            await self.held.wait()
        if self.unavailable.get(broker_id, 0):
            self.unavailable[broker_id] -= 1
            raise PeerUnavailable("closed by the peer")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=marked.name, partitions=self._lines(marked.name, marked.partition_indexes)
                        )
                        for marked in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _lines(self, name: str, indexes: list[int]) -> list[WritableTxnMarkerPartitionResult]:
        lines = []
        for index in indexes:
            codes = self.codes.get((name, index), [])
            code = codes.pop(0) if codes else 0
            if code is not None:
                lines.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        return lines

    def _report(self, shard: int, sent: SendMarkers, partitions: Collection[PartitionKey]) -> bool | None:
        assert shard == 4
        if self.ignored_answers:
            self.ignored_answers -= 1
            return None
        if self.mistakes:
            self.mistakes -= 1
            raise ValueError("our own")
        self.done.setdefault(sent.transactional_id, set()).update(partitions)
        self.changed.set()
        return self.wanted

    def send(self, sent: SendMarkers) -> None:
        self.link.send(4, sent)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():  # noqa: ASYNC110 (any condition: there is no event to wait for)
                await asyncio.sleep(0.002)

    async def finished(self) -> None:
        await self.until(lambda: self.link.transactions == 0 and not self.tasks)


class _Late:
    """The connections for slow partitions."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def request(self, broker_id: int, api_key: int, version: int, message: WriteTxnMarkersRequest) -> Any:
        encode_request(api_key, version, message)
        return await self._world.late_request(broker_id, message)
