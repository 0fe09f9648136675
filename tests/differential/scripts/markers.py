"""WriteTxnMarkers in every version: what a partition's leader takes from a coordinator, and when (TXN-14)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.producers import DescribeProducersRequest, DescribeProducersTopic
from brokers.engine.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.markers"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in (0, 1):
        _Version(player, version).play()


class _Version:
    def __init__(self, player: Player, version: int) -> None:
        self.player, self.version = player, version
        self.inside = player.operator()
        self.topic = f"{PREFIX}.v{version}"
        player.make_topic(self.topic, 3)

    def marker(
        self,
        id: int,
        epoch: int = 0,
        *,
        committed: bool = True,
        held_epoch: int = 0,
        topics: dict[str, list[int]] | None = None,
    ) -> WritableTxnMarker:
        wanted = {self.topic: [0]} if topics is None else topics
        return WritableTxnMarker(
            producer_id=id,
            producer_epoch=epoch,
            transaction_result=committed,
            coordinator_epoch=held_epoch,
            topics=[
                WritableTxnMarkerTopic(name=self.player.inside(name), partition_indexes=indexes)
                for name, indexes in wanted.items()
            ],
        )

    def ask(self, what: str, *markers: WritableTxnMarker) -> None:
        request = WriteTxnMarkersRequest(markers=list(markers))
        self.inside.ask(f"v{self.version}: {what}", ApiKey.WRITE_TXN_MARKERS, self.version, request)

    def play(self) -> None:
        stranger = 6_000_000 + self.version
        self.ask("no markers")
        self.ask("a producer that never wrote", self.marker(stranger))
        self.ask("it again", self.marker(stranger))
        self.ask("an older epoch of the coordinator", self.marker(stranger, held_epoch=-1))
        self.ask("a newer epoch of the coordinator", self.marker(stranger, held_epoch=4))
        self.ask("the older one again", self.marker(stranger, held_epoch=3))
        self.ask("a newer producer epoch", self.marker(stranger, 2, held_epoch=4))
        self.ask("an older producer epoch", self.marker(stranger, 1, held_epoch=4))
        self.ask("an unknown partition", self.marker(stranger, 2, held_epoch=4, topics={self.topic: [1, 9, -1]}))
        self.ask("an unknown topic", self.marker(stranger, 2, held_epoch=4, topics={f"{PREFIX}.unknown": [0]}))
        self.ask("no partitions", self.marker(stranger, 2, held_epoch=4, topics={self.topic: []}))
        self.ask("no topics", self.marker(stranger, 2, held_epoch=4, topics={}))
        self.ask("two producers", self.marker(stranger, 2, held_epoch=4), self.marker(stranger + 10))
        self.ask("producer id -1", self.marker(-1))
        self.ask("producer epoch -1", self.marker(stranger + 20, -1))
        self._in_a_transaction()

    def _in_a_transaction(self) -> None:
        """A marker for a transaction that is open, as an operator sends it to end one that hangs."""
        item = Transactional(self.player, f"{PREFIX}.v{self.version}").begun({self.topic: [2]})
        item.produce(None, self.topic, b"open", b"too", partition=2)
        self.look("open")
        place = {self.topic: [2]}
        self.ask("abort of what is open", self.marker(item.id, item.epoch, committed=False, topics=place))
        self.look("aborted")
        item.produce(f"v{self.version}: produced after that", self.topic, b"more", partition=2)
        self.ask("commit of what is open", self.marker(item.id, item.epoch, topics=place))
        self.look("committed")
        item.finish(committed=True)
        self.look("committed by the coordinator too")

    def look(self, when: str) -> None:
        wanted = [DescribeProducersTopic(name=self.topic, partition_indexes=[2])]
        label = f"v{self.version}, {when}: producers"
        self.player.ask(label, ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=wanted))
        asked = FetchPartition(partition=2, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = FetchRequest(isolation_level=1, topics=[FetchTopic(topic=self.topic, partitions=[asked])])
        self.player.ask(f"v{self.version}, {when}: read", ApiKey.FETCH, 11, fetch)
