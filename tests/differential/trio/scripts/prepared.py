"""Answers while a transaction is decided and a partition's leader is away.

TXN-4, TXN-7, TXN-10, TXN-12.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest, ListTransactionsRequest
from brokers.engine.protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.differential.commits import fetch, offset
from tests.differential.transacting import Transactional
from tests.differential.trio.coordinating import coordinated_by
from tests.differential.trio.play import TrioPlayer

HERE, AWAY = "trio.prepared.here", "trio.prepared.away"


def script(play: TrioPlayer) -> None:
    play.make(HERE, "A")
    play.make(f"{HERE}.two", "A")
    play.make(AWAY, "B")
    for committed in (True, False):
        _decided(play, "commit" if committed else "abort", committed=committed)


def _decided(play: TrioPlayer, end: str, *, committed: bool) -> None:
    at = play.at["A"]
    group = coordinated_by(play, "A", f"trio.prepared.group.{end}.", is_group=True)
    item = Transactional(at, coordinated_by(play, "A", f"trio.prepared.{end}.", is_group=False))
    item.begun({HERE: [0], AWAY: [0]})
    item.produce(None, HERE, b"decided")
    item.add_offsets(None, group)
    item.commit_offsets(None, group, {HERE: [offset(0, 5)]})
    with play.stopped("B"):
        item.end(f"{end}: decided", committed=committed)
        play.at["A"].until(lambda: _stable(play, group), "the group's offsets are decided")
        _asked(play, item, group, end)
    item.until("CompleteCommit" if committed else "CompleteAbort")
    item.end(f"{end}: the same end once all know", committed=committed)
    item.init(f"{end}: an id once all know")


def _stable(play: TrioPlayer, group: str) -> bool:
    answer = fetch(play.at["A"], None, 9, group, {HERE: [0]}, require_stable=True)
    return bool(answer.groups[0].topics[0].partitions[0].error_code == 0)


def _asked(play: TrioPlayer, one: Transactional, group: str, end: str) -> None:
    at = play.at["A"]
    id, epoch = one.id, one.epoch
    request = DescribeTransactionsRequest(transactional_ids=[one.name])
    at.ask(f"{end}: described", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    for states in (["PrepareCommit"], ["PrepareAbort"], ["Ongoing"]):
        listed = ListTransactionsRequest(state_filters=states, producer_id_filters=[id])
        at.ask(f"{end}: listed as {states[0]}", ApiKey.LIST_TRANSACTIONS, 1, listed)
    for version in range(6):
        one.init(f"{end}: init v{version}", version)
        if version >= 3:
            one.init(f"{end}: init v{version}, its own epoch", version, producer_id=id, producer_epoch=epoch)
            one.init(f"{end}: init v{version}, a wrong epoch", version, producer_id=id, producer_epoch=epoch + 7)
    for version in range(4):
        one.add(f"{end}: add v{version}", {f"{HERE}.two": [0]}, version)
        one.add(f"{end}: add v{version}, what is in it", {AWAY: [0]}, version)
        one.add(f"{end}: add v{version}, the epoch ahead", {HERE: [0]}, version, producer_epoch=epoch + 1)
    for version in range(5):
        one.add_offsets(f"{end}: add offsets v{version}", group, version)
        one.commit_offsets(f"{end}: commit offsets v{version}", group, {HERE: [offset(0, 6)]}, version)
        for committed in (True, False):
            how = "commit" if committed else "abort"
            one.end(f"{end}: end v{version}, {how}", committed=committed, version=version)
            one.end(
                f"{end}: end v{version}, {how}, the epoch ahead", committed=committed, version=version, producer_epoch=7
            )
    for version in (3, 8, 10, 11):
        one.produce(f"{end}: produce v{version}", HERE, b"more", version=version)
    inside = play.operator["A"]
    for version in (4, 5):
        for verify_only in (True, False):
            name = play.inside(one.name)
            entry = one.entry({play.inside(AWAY): [0]}, verify_only=verify_only, transactional_id=name)
            asked = AddPartitionsToTxnRequest(transactions=[entry])
            how = "verify" if verify_only else "add"
            inside.ask(f"{end}: {how} v{version}, between brokers", ApiKey.ADD_PARTITIONS_TO_TXN, version, asked)
    line = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    read = FetchRequest(
        max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[FetchTopic(topic=HERE, partitions=[line])]
    )
    at.ask(f"{end}: read", ApiKey.FETCH, 11, read)
    fetch(at, f"{end}: offsets", 9, group, None, require_stable=True)
