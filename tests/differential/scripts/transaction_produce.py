"""Transactional produce in every version: what was added, what was not, and sequences under it (TXN-15, TXN-27)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import CONTROL, TRANSACTIONAL
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.scripts.produce import produced
from tests.differential.transacting import Transactional

PREFIX = "diff.txnproduce"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in range(3, 12):
        topic = f"{PREFIX}.v{version}"
        player.make_topic(topic, 9)
        _Version(player, version, topic).play()


class _Version:
    def __init__(self, player: Player, version: int, topic: str) -> None:
        self.player, self.version, self.topic = player, version, topic
        self.one = Transactional(player, f"{PREFIX}.v{version}").begun()

    def ask(self, what: str, records: bytes, *, id: str | None = "", partition: int = 0, **more: Any) -> None:
        id = self.one.name if id == "" else id
        request = produced(self.topic, records, partition=partition, transactional_id=id, **more)
        self.player.ask(f"v{self.version}: {what}", ApiKey.PRODUCE, self.version, request)

    def play(self) -> None:
        item = self.one
        self.ask("nothing added", item.batch(b"a"))
        item.add(None, {self.topic: [0, 1, 2]})
        self._sequences()
        self._wrong()
        self._several()
        item.finish(committed=True)
        self._after()

    def _sequences(self) -> None:
        item = self.one
        self.ask("not from 0", item.batch(b"a", sequence=3))
        self.ask("a first batch", item.batch(b"a", b"b"))
        self.ask("it again", item.batch(b"a", b"b"))
        self.ask("the next", item.batch(b"c", sequence=2))
        self.ask("a gap", item.batch(b"x", sequence=9))
        self.ask("a partition that was not added", item.batch(b"a"), partition=3)
        self.ask("a first in another partition, not from 0", item.batch(b"a", sequence=3), partition=1)
        self.ask("a first in another partition", item.batch(b"a"), partition=1)

    def _wrong(self) -> None:
        item = self.one
        plain = item.batch(b"x", sequence=3, attributes=0)
        self.ask("a plain batch of the same producer", plain)
        self.ask("a plain batch of the same producer, no transactional id", plain, id=None)
        self.ask("a plain batch of the same producer, another partition", item.batch(b"x", attributes=0), partition=4)
        self.ask(
            "a plain batch of nobody", item.batch(b"x", attributes=0, producer_id=-1, producer_epoch=-1, sequence=-1)
        )
        self.ask("no transactional id", item.batch(b"x", sequence=3), id=None)
        self.ask("no transactional id, not added", item.batch(b"x"), id=None, partition=5)
        self.ask("a transactional id that nobody has", item.batch(b"x"), id="nobody", partition=5)
        self.ask("another's transactional id, in a transaction", item.batch(b"d", sequence=3), id="nobody")
        self.ask("another producer id", item.batch(b"x", producer_id=item.id + 1_000_000), partition=2)
        self.ask("the epoch ahead", item.batch(b"x", producer_epoch=item.epoch + 1), partition=2)
        self.ask(
            "the epoch ahead where it has written, not from 0",
            item.batch(b"x", sequence=9, producer_epoch=item.epoch + 1),
        )
        self.ask("a control batch", item.batch(b"x", attributes=TRANSACTIONAL | CONTROL), partition=2)
        self.ask("no producer id", item.batch(b"x", producer_id=-1, producer_epoch=-1, sequence=-1), partition=8)
        self.ask("acks 1", item.batch(b"e", sequence=4), acks=1)
        self.ask("a wrong crc", item.batch(b"e", sequence=5, crc=1))
        self.ask("an unknown partition", item.batch(b"e"), partition=99)

    def _several(self) -> None:
        item = self.one
        for what, partitions in {
            "one added, one not": [(2, 0), (6, 0)],
            "both added": [(2, 1), (1, 1)],
            "both not added": [(6, 0), (7, 0)],
        }.items():
            data = [
                PartitionProduceData(index=index, records=item.batch(b"s", sequence=sequence))
                for index, sequence in partitions
            ]
            request = ProduceRequest(
                acks=-1,
                timeout_ms=5_000,
                transactional_id=item.name,
                topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
            )
            self.player.ask(f"v{self.version}: {what}", ApiKey.PRODUCE, self.version, request)
        two = Transactional(self.player, f"{PREFIX}.v{self.version}.two").begun({self.topic: [0, 3]})
        self.ask("another transaction in the same partition", two.batch(b"t"), id=two.name)
        self.ask("plain beside two transactions", two.batch(b"t", attributes=0), id=None, partition=7)
        two.finish(committed=False)
        self.ask("the other transaction after its abort", two.batch(b"t", sequence=1), id=two.name)
        self.ask("the other plain after its abort", two.batch(b"t", sequence=1, attributes=0), id=None)

    def _after(self) -> None:
        item = self.one
        self.ask("after the commit", item.batch(b"f", sequence=5))
        self.ask("a batch of the transaction again, after the commit", item.batch(b"e", sequence=4))
        item.add(None, {self.topic: [0]})
        self.ask("in the next transaction", item.batch(b"f", sequence=5))
        old = Transactional(self.player, item.name)
        old.id, old.epoch = item.id, item.epoch
        item.init(None)
        item.until("CompleteAbort")
        item.init(None)
        self.ask("the epoch before", old.batch(b"g", sequence=6))
        self.ask("the epoch before, where it has not written", old.batch(b"g"), partition=7)
        self.ask("the epoch before, plain", old.batch(b"g", sequence=6, attributes=0), id=None)
        item.add(None, {self.topic: [0]})
        self.ask("the epoch before, in its successor's transaction", old.batch(b"g", sequence=6))
        self.ask("its successor, not from 0", item.batch(b"h", sequence=6))
        self.ask("its successor", item.batch(b"h"))
        item.finish(committed=True)
