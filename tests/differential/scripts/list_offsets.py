"""ListOffsets in every version: special timestamps, real ones, and what cannot be asked (LOG-25…28)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.differential.batches import GZIP, TIME_MS, batch
from tests.differential.play import Player
from tests.differential.scripts.produce import produced

PREFIX = "diff.list_offsets"


def script(player: Player) -> None:
    player.make_topic(PREFIX, 3)
    # Offsets 0…2 at +0, +1, +2; 3 and 4 compressed at +100, +101; 5 out of order at +50.
    for records in (
        batch(b"a", b"b", b"c"),
        batch(b"d", b"e", base_time_ms=TIME_MS + 100, codec=GZIP),
        batch(b"f", base_time_ms=TIME_MS + 50),
    ):
        player.call(ApiKey.PRODUCE, 9, produced(PREFIX, records))
    player.call(ApiKey.PRODUCE, 9, produced(PREFIX, batch(b"x", base_time_ms=-1), partition=1))
    for version in range(1, 10):
        _version(player, version)


def partition(index: int, timestamp: int, leader_epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=leader_epoch)


def _version(player: Player, version: int) -> None:
    def ask(
        what: str, *partitions: ListOffsetsPartition, topic: str = PREFIX, isolation: int = 0, replica: int = -1
    ) -> None:
        topics = [ListOffsetsTopic(name=topic, partitions=list(partitions))]
        request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics)
        player.ask(f"v{version}: {what}", ApiKey.LIST_OFFSETS, version, request)

    for index in range(3):
        for timestamp in range(-7, 0):
            ask(f"partition {index}, timestamp {timestamp}", partition(index, timestamp))
    for after_ms in (-1000, 0, 1, 2, 3, 50, 99, 100, 101, 102, 1000):
        ask(f"time {after_ms:+}", partition(0, TIME_MS + after_ms))
    ask("time 0", partition(0, 0))
    ask("time of records without time", partition(1, TIME_MS))
    ask("time in an empty partition", partition(2, TIME_MS))
    ask("several", partition(0, -1), partition(1, -2), partition(2, -1))
    ask("a partition twice", partition(0, -1), partition(0, -2))
    ask("a partition thrice and another", partition(0, -1), partition(1, -1), partition(0, -2), partition(0, -1))
    ask("no partitions")
    ask("unknown partition", partition(9, -1))
    ask("negative partition", partition(-1, -1))
    ask("a known and an unknown partition", partition(0, -1), partition(9, -1))
    ask("unknown topic", partition(0, -1), topic=f"{PREFIX}.unknown")
    ask("bad topic name", partition(0, -1), topic="a/b")
    ask("empty topic name", partition(0, -1), topic="")
    player.ask(f"v{version}: no topics", ApiKey.LIST_OFFSETS, version, ListOffsetsRequest())
    if version >= 2:
        ask("read committed", partition(0, -1), isolation=1)
        ask("read committed, time", partition(0, TIME_MS), isolation=1)
        ask("isolation 7", partition(0, -1), isolation=7)
    if version >= 4:
        ask("leader epoch 0", partition(0, -1, 0))
        ask("leader epoch 9", partition(0, -1, 9))
        ask("leader epoch -2", partition(0, -1, -2))
    ask("as a debugging consumer", partition(0, -1), replica=-2)
