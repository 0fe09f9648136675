"""Groups and transactional ids with unusual names (CKA-16, GRP-1, GRP-4)."""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import GROUP, TRANSACTION, Member, begin_script, describe
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.odd"
TOPIC = f"{PREFIX}.topic"
NAMES: Final = {
    "a space": " ",
    "a slash": f"{PREFIX}/a/b",
    "dots": "..",
    "a line break": f"{PREFIX}\n",
    "a zero": f"{PREFIX}\0zero",
    "Chinese": f"{PREFIX}.组",
    "beyond the plane": f"{PREFIX}.\U0001f600",
    "a percent sign": f"{PREFIX}%2e%n",
    "quotes": f"{PREFIX}'\"\\",
    "a state topic": "__consumer_offsets",
    "upper case": PREFIX.upper(),
    "600 characters": PREFIX.ljust(600, "x"),
}


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 2)
    for what, name in NAMES.items():
        for version in (1, 4):
            for kind in (GROUP, TRANSACTION):
                request = FindCoordinatorRequest(key_type=kind, key=name, coordinator_keys=[name])
                kinds = "a group" if kind == GROUP else "an id"
                player.ask(f"{what}: find v{version}, {kinds}", ApiKey.FIND_COORDINATOR, version, request)
        _group(player, what, name)
        _transaction(player, what, name)


def _group(player: Player, what: str, name: str) -> None:
    Committing(player, name, 9).ask(f"{what}: a commit", topics={TOPIC: [offset(0, 5), offset(1, 6, name)]})
    fetch(player, f"{what}: fetch", 7, name, None)
    member = Member(player, name, "one")
    member.join(f"{what}: join")
    member.join(f"{what}: join again")
    member.sync(f"{what}: sync", {member.id: b"all"})
    member.beat(f"{what}: heartbeat")
    describe(player, f"{what}: described", name)
    listed = player.call(ApiKey.LIST_GROUPS, 4, ListGroupsRequest(states_filter=["Stable"]))
    player.write_down(f"{what}: listed", name in [group.group_id for group in listed.groups])
    member.leave(f"{what}: leave")
    for times in ("once", "twice"):
        request = DeleteGroupsRequest(groups_names=[name])
        player.ask(f"{what}: deleted {times}", ApiKey.DELETE_GROUPS, 2, request)


def _transaction(player: Player, what: str, name: str) -> None:
    item = Transactional(player, name)
    item.init(f"{what}: init")
    item.add(f"{what}: add", {TOPIC: [0]})
    item.add_offsets(f"{what}: add offsets", name)
    item.commit_offsets(f"{what}: commit offsets", name, {TOPIC: [offset(0, 7)]})
    item.produce(f"{what}: produce", TOPIC, b"odd")
    item.end(f"{what}: end", committed=True)
    item.until("CompleteCommit")
    request = DescribeTransactionsRequest(transactional_ids=[name])
    player.ask(f"{what}: transaction described", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    fetch(player, f"{what}: fetch what the transaction committed", 9, name, None, require_stable=True)
