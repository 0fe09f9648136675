"""Fetch without a session in every version: what is read, what is cut, what is refused (A.6)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.differential.batches import GZIP, batch
from tests.differential.play import Player
from tests.differential.scripts.produce import produced

PREFIX = "diff.fetch"
UNKNOWN_ID = bytes(range(16))
TOPIC_IDS_FROM = 13


def script(player: Player) -> None:
    ids = {PREFIX: player.make_topic(PREFIX, 3), f"{PREFIX}.other": player.make_topic(f"{PREFIX}.other")}
    # Partition 0: offsets 0…2, 3…4 (gzip), 5…5 of 500 bytes; partition 1: one record; partition 2: empty.
    for records in (batch(b"a", b"b", b"c"), batch(b"d" * 40, b"e" * 40, codec=GZIP), batch(b"f" * 500)):
        player.call(ApiKey.PRODUCE, 9, produced(PREFIX, records))
    player.call(ApiKey.PRODUCE, 9, produced(PREFIX, batch(b"g"), partition=1))
    player.call(ApiKey.PRODUCE, 9, produced(f"{PREFIX}.other", batch(b"h")))
    for version in range(4, 18):
        _Version(player, version, ids).play()


def partition(index: int, offset: int = 0, max_bytes: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


class _Version:
    def __init__(self, player: Player, version: int, ids: dict[str, bytes]) -> None:
        self.player = player
        self.version = version
        self.ids = ids

    def topic(self, name: str, *partitions: FetchPartition) -> FetchTopic:
        if self.version >= TOPIC_IDS_FROM:
            return FetchTopic(topic_id=self.ids.get(name, UNKNOWN_ID), partitions=list(partitions))
        return FetchTopic(topic=name, partitions=list(partitions))

    def ask(self, what: str, *partitions: FetchPartition, name: str = PREFIX, **fields: Any) -> None:
        self.ask_topics(what, self.topic(name, *partitions), **fields)

    def ask_topics(self, what: str, *topics: FetchTopic, **fields: Any) -> None:
        fields = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
        request = FetchRequest(topics=list(topics), **fields)
        self.player.ask(f"v{self.version}: {what}", ApiKey.FETCH, self.version, request)

    def play(self) -> None:
        self._offsets()
        self._limits()
        self._places()
        self._epochs()

    def _offsets(self) -> None:
        for offset in range(7):
            self.ask(f"from {offset}", partition(0, offset))
        for offset in (7, 1 << 40, -1, -2):
            self.ask(f"from {offset}", partition(0, offset))
        self.ask("an empty partition", partition(2))
        self.ask("an empty partition from 1", partition(2, 1))
        self.ask("at the end, no wait", partition(0, 6), max_wait_ms=0)
        self.ask("read committed", partition(0, 3), isolation_level=1)
        self.ask("read committed, at the end", partition(0, 6), isolation_level=1)
        self.ask("read committed, out of range", partition(0, 99), isolation_level=1)
        self.ask("read committed, unknown partition", partition(9), isolation_level=1)
        self.ask("isolation 7", partition(0, 3), isolation_level=7)
        self.ask("isolation -1", partition(0, 3), isolation_level=-1)

    def _limits(self) -> None:
        for max_bytes in (0, 1, 80, 100, 250, -1):
            self.ask(f"partition limit {max_bytes}", partition(0, 0, max_bytes))
            self.ask(f"answer limit {max_bytes}", partition(0, 0), max_bytes=max_bytes)
        self.ask("answer limit 100, two partitions", partition(0), partition(1), max_bytes=100)
        self.ask("answer limit 10, the other order", partition(1), partition(0), max_bytes=10)
        self.ask("answer limit 10, an empty one first", partition(2), partition(0), partition(1), max_bytes=10)
        self.ask("more bytes wanted than there are", partition(0), min_bytes=1 << 19)
        self.ask("no bytes wanted", partition(2), min_bytes=0, max_wait_ms=5000)
        self.ask("negative wait", partition(2), max_wait_ms=-1)
        self.ask("negative bytes wanted", partition(2), min_bytes=-1)

    def _places(self) -> None:
        self.ask("two partitions", partition(1), partition(0))
        self.ask("a partition twice", partition(1), partition(1))
        self.ask("a partition twice, the second time elsewhere", partition(0), partition(1), partition(0, 5))
        self.ask("unknown partition", partition(9))
        self.ask("negative partition", partition(-1))
        self.ask("a known and an unknown partition", partition(1), partition(9))
        self.ask("an out of range and a known partition", partition(0, 99), partition(1))
        self.ask("unknown topic", partition(0), name=f"{PREFIX}.unknown")
        if self.version < TOPIC_IDS_FROM:
            self.ask("bad topic name", partition(0), name="a/b")
            self.ask("empty topic name", partition(0), name="")
        else:
            zero = FetchTopic(topic_id=bytes(16), partitions=[partition(0)])
            self.ask_topics("topic id of zeros", zero)
        self.ask("no partitions")
        self.ask_topics("no topics")
        self.ask_topics("two topics", self.topic(PREFIX, partition(1)), self.topic(f"{PREFIX}.other", partition(0)))
        self.ask_topics(
            "a known and an unknown topic",
            self.topic(PREFIX, partition(1)),
            self.topic(f"{PREFIX}.unknown", partition(0)),
        )
        self.ask_topics("a topic twice", self.topic(PREFIX, partition(1)), self.topic(PREFIX, partition(0, 5)))
        other = self.topic(f"{PREFIX}.other", partition(0))
        self.ask_topics(
            "a topic twice, another between",
            self.topic(PREFIX, partition(1)), other, self.topic(PREFIX, partition(0, 5)),
        )  # fmt: skip
        self.ask_topics(
            "a partition twice, a topic between",
            self.topic(PREFIX, partition(0)), other, self.topic(PREFIX, partition(1), partition(0, 5)),
        )  # fmt: skip
        self.ask_topics(
            "only a partition twice, a topic between",
            self.topic(PREFIX, partition(0)), other, self.topic(PREFIX, partition(0, 5)),
        )  # fmt: skip

    def _epochs(self) -> None:
        if self.version >= 9:
            for epoch in (0, 1, 9, -2):
                self.ask(f"leader epoch {epoch}", partition(1, current_leader_epoch=epoch))
        if self.version >= 11:
            self.ask("a rack", partition(1), rack_id="no such rack")
        if self.version >= 12:
            for epoch in (0, 9, -2):
                self.ask(f"last fetched epoch {epoch}", partition(1, last_fetched_epoch=epoch))
            self.ask("last fetched epoch, beyond the end", partition(1, 5, last_fetched_epoch=0))
        if self.version >= 5:
            self.ask("a log start offset", partition(1, log_start_offset=7))
        if self.version >= 12:
            self.ask("a cluster id", partition(1), cluster_id="someone else's")
