"""Groups and transactions asked for at a broker that does not coordinate them (GRP-4, TXN-28)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest, ListTransactionsRequest
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import Member, complete
from tests.differential.transacting import Transactional
from tests.differential.trio.coordinating import coordinated_by
from tests.differential.trio.play import TrioPlayer

TOPIC = "trio.elsewhere"


def script(play: TrioPlayer) -> None:
    play.make(TOPIC, "A")
    _groups(play)
    _transactions(play)


def _groups(play: TrioPlayer) -> None:
    group = coordinated_by(play, "A", "trio.elsewhere.group.", is_group=True)
    complete(Member(play.at["A"], group, "here"))
    there = play.at["B"]
    for version in range(10):
        member = Member(there, group, "there", version)
        member.join(f"join v{version}")
        member.join(f"join v{version}, an id", member_id="nobody")
        if version < 6:
            member.sync(f"sync v{version}", generation_id=1, member_id="nobody")
            member.leave(f"leave v{version}", member_id="nobody")
        if version < 5:
            member.beat(f"heartbeat v{version}", generation_id=1, member_id="nobody")
        member.at.close()
        if version:
            committing = Committing(there, group, version)
            committing.topic = TOPIC
            committing.ask(f"commit v{version}")
            committing.ask(f"commit v{version}, an unknown topic", topics={"trio.unknown": [offset(0, 1)]})
            fetch(there, f"fetch v{version}", version, group, {TOPIC: [0]})
            if version >= 2:
                fetch(there, f"fetch v{version}, all", version, group, None)
    for version in range(6):
        there.ask(f"describe v{version}", ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group]))
    for version in range(3):
        there.ask(f"delete v{version}", ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=[group]))
    there.ask("list", ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    entry = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    there.ask("delete offsets", ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=[entry]))


def _transactions(play: TrioPlayer) -> None:
    group = coordinated_by(play, "A", "trio.elsewhere.txngroup.", is_group=True)
    here = Transactional(play.at["A"], coordinated_by(play, "A", "trio.elsewhere.", is_group=False)).begun({TOPIC: [0]})
    here.add_offsets(None, group)
    there = Transactional(play.at["B"], here.name)
    there.id, there.epoch = here.id, here.epoch
    for version in range(6):
        there.init(f"init v{version}", version)
        there.init(f"init v{version}, time-out 0", version, transaction_timeout_ms=0)
    for version in range(4):
        there.add(f"add v{version}", {TOPIC: [0]}, version)
        there.add(f"add v{version}, an unknown topic", {"trio.unknown": [0]}, version)
    for version in range(5):
        there.add_offsets(f"add offsets v{version}", group, version)
        there.commit_offsets(f"commit offsets v{version}", group, {TOPIC: [offset(0, 5)]}, version)
        there.end(f"end v{version}", committed=True, version=version)
    request = DescribeTransactionsRequest(transactional_ids=[here.name])
    play.at["B"].ask("describe", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    listed = ListTransactionsRequest(producer_id_filters=[here.id])
    play.at["B"].ask("list transactions", ApiKey.LIST_TRANSACTIONS, 1, listed)
    here.finish(committed=False)
