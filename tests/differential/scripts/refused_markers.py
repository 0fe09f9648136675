"""A partition that knows a later epoch of a producer than its coordinator does: the marker is refused there (TXN-12,
TXN-14), and what becomes of the transaction.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from tests.differential.batches import batch
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.scripts.produce import produced
from tests.differential.transacting import Transactional

PREFIX = "diff.refused"
FORGED, SOUND = f"{PREFIX}.forged", f"{PREFIX}.sound"
AHEAD = 5


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for name in (FORGED, SOUND):
        player.make_topic(name, 2)
    for index, end in enumerate(("commit", "abort")):
        _refused(player, index, end, committed=end == "commit")


def _refused(player: Player, index: int, end: str, *, committed: bool) -> None:
    item = Transactional(player, f"{PREFIX}.{end}").begun({FORGED: [index], SOUND: [index]})
    item.produce(f"{end}: produce", SOUND, b"sound", partition=index)
    ahead = batch(b"ahead", producer_id=item.id, producer_epoch=item.epoch + AHEAD, base_sequence=0)
    player.ask(f"{end}: a later epoch", ApiKey.PRODUCE, 9, produced(FORGED, ahead, partition=index))
    item.produce(f"{end}: produce after it", FORGED, b"behind", partition=index)
    item.end(f"{end}: ended", committed=committed)
    player.until(lambda: _stable(player, index), "the sound partition has its marker")
    request = DescribeTransactionsRequest(transactional_ids=[item.name])
    player.ask(f"{end}: described", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    for also in (True, False):
        item.end(f"{end}: ended again with {'commit' if also else 'abort'}", committed=also)
    item.add(f"{end}: another partition", {SOUND: [1 - index]})
    for topic in (SOUND, FORGED):
        player.ask(f"{end}: read {topic}", ApiKey.FETCH, 11, _reading(topic, index))
    Transactional(player, item.name).init(f"{end}: begun again")


def _reading(topic: str, index: int) -> FetchRequest:
    line = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[line])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=topics)


def _stable(player: Player, index: int) -> bool:
    answer = player.call(ApiKey.FETCH, 11, _reading(SOUND, index))
    partition = answer.responses[0].partitions[0]
    return bool(partition.last_stable_offset == partition.high_watermark)
