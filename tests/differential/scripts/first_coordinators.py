"""The first requests for a coordinator on a new broker (GRP-2, GRP-3).

It must be the first script on its broker.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from brokers.engine.protocol.messages.offsets import OffsetDeleteRequest
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest, ListTransactionsRequest
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import GROUP, TRANSACTION, Member, describe, find_coordinator
from tests.differential.names import Names
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.first"
TOPIC = f"{PREFIX}.topic"


def script(player: Player) -> None:
    player.normalise = Names(PREFIX, player.address.prefix)
    player.make_topic(TOPIC)
    _groups(player)
    _transactions(player)
    first = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[f"{PREFIX}.id"])
    player.ask("the first to ask for a transaction's", ApiKey.FIND_COORDINATOR, 4, first)
    find_coordinator(player, f"{PREFIX}.id", TRANSACTION)
    item = Transactional(player, f"{PREFIX}.id")
    player.until(lambda: item.init(None).error_code == 0, "a producer id")
    first = FindCoordinatorRequest(key_type=GROUP, key=f"{PREFIX}.group")
    player.ask("the first to ask for a group's", ApiKey.FIND_COORDINATOR, 0, first)
    find_coordinator(player, f"{PREFIX}.group", GROUP)
    player.until(lambda: not describe_quietly(player), "the group's coordinator has loaded")
    fetch(player, "offsets once there is a coordinator", 9, f"{PREFIX}.group", None)


def describe_quietly(player: Player) -> bool:
    answer = fetch(player, None, 9, f"{PREFIX}.group", None)
    return bool(answer.groups[0].error_code)


def _groups(player: Player) -> None:
    group = f"{PREFIX}.group"
    for version in (1, 2, 7, 8):
        fetch(player, f"fetch v{version}", version, group, {TOPIC: [0]})
    for version in (1, 9):
        Committing(player, group, version).ask(f"commit v{version}", topics={TOPIC: [offset(0, 1)]})
    member = Member(player, group, "one")
    member.join("join")
    member.id, member.generation = "nobody", 1
    member.sync("sync")
    member.beat("heartbeat")
    member.leave("leave")
    describe(player, "described", group)
    player.ask("listed", ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    player.ask("deleted", ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group]))
    player.ask("offsets deleted", ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=[]))


def _transactions(player: Player) -> None:
    item = Transactional(player, f"{PREFIX}.id")
    item.id, item.epoch = 1_000_000, 0
    player.until_ready(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    for version in (0, 4):
        Transactional(player, item.name).init(f"init v{version}", version)
    for version in (0, 3):
        item.add(f"add v{version}", {TOPIC: [0]}, version)
        item.add_offsets(f"add offsets v{version}", f"{PREFIX}.group", version)
        item.end(f"end v{version}", committed=True, version=version)
        item.commit_offsets(f"commit offsets v{version}", f"{PREFIX}.group", {TOPIC: [offset(0, 1)]}, version)
    item.produce("produce", TOPIC, b"early")
    request = DescribeTransactionsRequest(transactional_ids=[item.name])
    player.ask("transaction described", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    player.ask("transactions listed", ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest())
