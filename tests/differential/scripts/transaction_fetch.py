"""Records that readers of both isolation levels see of open, committed and aborted transactions (TXN-20…23)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from tests.differential.batches import TIME_MS, batch
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.scripts.fetch import TOPIC_IDS_FROM
from tests.differential.scripts.list_offsets import partition as listed
from tests.differential.scripts.produce import produced
from tests.differential.transacting import Transactional

PREFIX = "diff.txnfetch"
UNCOMMITTED, COMMITTED = 0, 1
# Fetches over everything are long answers: few versions tell all that there is to tell.
WHOLE = (4, 11, 17)
OFFSETS = range(18)


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    topic_id = player.make_topic(PREFIX, 3)
    open_one = _written(player)
    for version in range(4, 18):
        _fetched(player, version, topic_id)
    for version in range(2, 10):
        _listed(player, version)
    open_one.finish(committed=False)
    player.until(lambda: _end(player, COMMITTED) == _end(player, UNCOMMITTED), "the last transaction is over")
    for version in WHOLE:
        asking = _Asking(player, version, topic_id, "after the last abort")
        for offset in (0, 9, 12):
            asking.ask(f"from {offset}", COMMITTED, 0, offset)
    _list(player, 9, "after the last abort", COMMITTED, 0, -1)


def _written(player: Player) -> Transactional:
    """Partition 0: a committed transaction, an aborted one, two entangled (one aborted, one committed), plain records
    between, an open one, and plain ones after it. Partition 1: open from the first offset on. Partition 2: empty.
    """
    item, two, three = (Transactional(player, f"{PREFIX}.{name}").begun() for name in ("one", "two", "three"))
    item.add(None, {PREFIX: [0]})
    item.produce(None, PREFIX, b"committed", b"too")  # 0, 1; marker 2
    item.finish(committed=True)
    item.add(None, {PREFIX: [0]})
    item.produce(None, PREFIX, b"aborted")  # 3; marker 4
    item.finish(committed=False)
    _plain(player, b"plain")  # 5
    item.add(None, {PREFIX: [0]})
    two.add(None, {PREFIX: [0]})
    item.produce(None, PREFIX, b"entangled, to be aborted")  # 6
    two.produce(None, PREFIX, b"entangled, to be committed")  # 7
    item.produce(None, PREFIX, b"to be aborted too")  # 8
    item.finish(committed=False)  # 9
    _plain(player, b"between")  # 10
    two.finish(committed=True)  # 11
    three.add(None, {PREFIX: [0, 1]})
    three.produce(None, PREFIX, b"open")  # 12
    _plain(player, b"after")  # 13
    two.add(None, {PREFIX: [0]})
    two.produce(None, PREFIX, b"committed behind an open one")  # 14
    two.finish(committed=True)  # 15
    three.produce(None, PREFIX, b"open from the first", partition=1)
    return three


def _plain(player: Player, value: bytes) -> None:
    player.call(ApiKey.PRODUCE, 9, produced(PREFIX, batch(value)))


class _Asking:
    def __init__(self, player: Player, version: int, topic_id: bytes, at: str = "") -> None:
        self.player, self.version, self.topic_id = player, version, topic_id
        self.at = f"fetch v{version}{f', {at}' if at else ''}"

    def ask(self, what: str, isolation: int, index: int, offset: int, max_bytes: int = 1 << 20) -> None:
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        if self.version >= TOPIC_IDS_FROM:
            topic = FetchTopic(topic_id=self.topic_id, partitions=[asked])
        else:
            topic = FetchTopic(topic=PREFIX, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=isolation, topics=[topic])
        how = "committed" if isolation == COMMITTED else "all"
        self.player.ask(f"{self.at}: {what}, {how}", ApiKey.FETCH, self.version, request)


def _fetched(player: Player, version: int, topic_id: bytes) -> None:
    asking = _Asking(player, version, topic_id)
    for isolation in (COMMITTED, UNCOMMITTED):
        asking.ask("from 0", isolation, 0, 0)
        asking.ask("an open one from the first offset", isolation, 1, 0)
        asking.ask("an empty partition", isolation, 2, 0)
        asking.ask("out of range", isolation, 0, 99)
    asking.ask("behind the last stable", COMMITTED, 0, 13)
    asking.ask("one batch", COMMITTED, 0, 3, 1)
    if version in WHOLE:
        for offset in OFFSETS:
            asking.ask(f"at {offset}", COMMITTED, 0, offset)
        for offset in (0, 6, 10, 12):
            asking.ask(f"one batch from {offset}", COMMITTED, 0, offset, 1)
            asking.ask(f"300 bytes from {offset}", COMMITTED, 0, offset, 300)


def _list(player: Player, version: int, at: str, isolation: int, index: int, timestamp: int) -> int:
    topics = [ListOffsetsTopic(name=PREFIX, partitions=[listed(index, timestamp)])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    how = "committed" if isolation == COMMITTED else "all"
    when = f"{timestamp - TIME_MS:+}" if timestamp > 0 else timestamp
    label = f"list v{version}, {at}: partition {index} at {when}, {how}"
    result = player.ask(label, ApiKey.LIST_OFFSETS, version, request)
    return int(result.topics[0].partitions[0].offset)


def _listed(player: Player, version: int) -> None:
    for isolation in (COMMITTED, UNCOMMITTED):
        for index in (0, 1, 2):
            for timestamp in (-1, -2, -3, TIME_MS, TIME_MS + 1, TIME_MS + 1_000):
                if timestamp != -3 or version >= 7:
                    _list(player, version, "open", isolation, index, timestamp)


def _end(player: Player, isolation: int) -> int:
    topics = [ListOffsetsTopic(name=PREFIX, partitions=[listed(0, -1)])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    return int(player.call(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset)
