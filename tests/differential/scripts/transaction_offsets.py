"""AddOffsetsToTxn and TxnOffsetCommit in every version, and who sees such offsets when (TXN-8, TXN-9, GRP-23)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import Member, begin_script, complete, describe
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.txnoffsets"
TOPIC = f"{PREFIX}.topic"
MEMBERS_FROM = 3


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 4)
    for version in range(5):
        _added(player, version)
        _committed(player, version)
        _seen(player, version)
        if version >= MEMBERS_FROM:
            _members(player, version)
            _static(player, version)
    _two_producers(player)
    _deleted(player)


def _added(player: Player, version: int) -> None:
    item = Transactional(player, f"{PREFIX}.add.v{version}")

    def ask(what: str, group: str = f"{PREFIX}.group", **changes: Any) -> None:
        item.add_offsets(f"add v{version}: {what}", group, version, **changes)

    ask("an id that nobody has")
    ask("an empty id", transactional_id="")
    item.init(None)
    ask("another producer id", producer_id=item.id + 1_000_000)
    ask("the epoch ahead", producer_epoch=item.epoch + 1)
    ask("epoch -1", producer_epoch=-1)
    ask("an empty group id", "")
    ask("a group")
    ask("it again")
    ask("another group", f"{PREFIX}.another")
    item.finish(committed=True)
    ask("after the commit")
    item.finish(committed=False)
    item.init(None)
    ask("the epoch before", producer_epoch=item.epoch - 1)


def _committed(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}"
    item = Transactional(player, f"{PREFIX}.commit.v{version}")

    def ask(what: str, *offsets: Any, topics: Any = None, group: str = group, **changes: Any) -> None:
        wanted = {TOPIC: offsets or [offset(0, 5)]} if topics is None else topics
        item.commit_offsets(f"v{version}: {what}", group, wanted, version, **changes)

    item.id, item.epoch = 1_000_000, 0
    ask("an id that nobody has")
    item.init(None)
    ask("nothing added")
    ask("an empty transactional id", transactional_id="")
    item.add(None, {TOPIC: [0]})
    ask("offsets not added")
    item.add_offsets(None, f"{group}.other")
    item.add_offsets(None, group)
    ask("an empty group id", group="")
    ask("another producer id", producer_id=item.id + 1_000_000)
    ask("the epoch ahead", producer_epoch=item.epoch + 1)
    ask("the epoch before", producer_epoch=item.epoch - 1)
    ask("one", offset(0, 7, "seven"))
    ask("several", offset(0, 8), offset(1, 9, None), offset(2, 10))
    ask("a partition twice", offset(3, 1), offset(3, 2))
    ask("unknown partition", offset(9, 1), offset(0, 11))
    ask("unknown topic", topics={f"{PREFIX}.unknown": [offset(0, 1)], TOPIC: [offset(0, 12)]})
    ask("bad topic name", topics={"a/b": [offset(0, 1)]})
    ask("a topic without partitions", topics={TOPIC: []})
    ask("nothing", topics={})
    ask("metadata too long", offset(0, 1, "x" * 4097), offset(1, 13))
    ask("offset -1", offset(3, -1))
    if version >= 2:
        ask("a leader epoch", offset(2, 3, committed_leader_epoch=4))
    if version >= MEMBERS_FROM:
        ask("a member of no group", member_id="nobody")
        ask("a generation of no group", generation_id=1)
        ask("a member and a generation of no group", member_id="nobody", generation_id=1)
        ask("an instance of no group", group_instance_id="nobody")
    fetch(player, f"v{version}: open, all", 9, group, None)
    item.finish(committed=True)
    fetch(player, f"v{version}: committed, all", 9, group, None)
    ask("after the commit")


def _seen(player: Player, version: int) -> None:
    """Pending offsets are hidden; a request for stable ones has to wait."""
    group = f"{PREFIX}.seen.v{version}"
    item = Transactional(player, f"{PREFIX}.seen.v{version}")
    Committing(player, group, 9).ask(None, topics={TOPIC: [offset(0, 1), offset(1, 1)]})

    def look(when: str) -> None:
        for how, fetched in (("7", 7), ("9", 9)):
            at = f"v{version}, {when}: fetch v{how}"
            fetch(player, at, fetched, group, {TOPIC: [0, 1, 2]})
            fetch(player, f"{at}, stable", fetched, group, {TOPIC: [0, 1, 2]}, require_stable=True)
            fetch(player, f"{at}, all stable", fetched, group, None, require_stable=True)

    for committed in (False, True):
        end = "committed" if committed else "aborted"
        item.init(None)
        item.add_offsets(None, group)
        item.commit_offsets(None, group, {TOPIC: [offset(0, 5), offset(2, 6)]}, version)
        look(f"before {end}")
        describe(player, f"v{version}, before {end}: described", group)
        item.finish(committed=committed)
        player.until(
            lambda: (
                fetch(player, None, 9, group, None, require_stable=True).groups[0].topics[0].partitions[0].error_code
                == 0
            ),
            "no offset is pending",
        )
        look(end)


def _members(player: Player, version: int) -> None:
    group = f"{PREFIX}.members.v{version}"
    member = Member(player, group, "one")
    complete(member)
    item = Transactional(player, f"{PREFIX}.members.v{version}").begun()
    item.add_offsets(None, group)

    def ask(what: str, **changes: Any) -> None:
        item.commit_offsets(f"v{version}, members: {what}", group, {TOPIC: [offset(0, 5)]}, version, **changes)

    known = {"member_id": member.id, "generation_id": member.generation}
    ask("right", **known)
    ask("the generation before", **{**known, "generation_id": member.generation - 1})
    ask("a generation ahead", **{**known, "generation_id": member.generation + 1})
    ask("a stranger", **{**known, "member_id": "nobody"})
    ask("no member", **{**known, "member_id": ""})
    ask("generation -1", **{**known, "generation_id": -1})
    ask("neither")
    ask("an instance that nobody knows", **known, group_instance_id="nobody")
    member.join(None)
    ask("completing", member_id=member.id, generation_id=member.generation)
    ask("completing, neither")
    member.leave(None)
    ask("empty", **known)
    ask("empty, neither")
    item.finish(committed=True)
    fetch(player, f"v{version}, members: all", 9, group, None)


def _static(player: Player, version: int) -> None:
    group = f"{PREFIX}.static.v{version}"
    member = Member(player, group, "one", instance="first")
    complete(member)
    again = Member(player, group, "one", instance="first")
    again.join(None)
    item = Transactional(player, f"{PREFIX}.static.v{version}").begun()
    item.add_offsets(None, group)

    def ask(what: str, who: Member, **changes: Any) -> None:
        known = {"member_id": who.id, "generation_id": who.generation, "group_instance_id": who.instance, **changes}
        item.commit_offsets(f"v{version}, static: {what}", group, {TOPIC: [offset(0, 5)]}, version, **known)

    ask("the one that was replaced", member)
    ask("the one in its place", again)
    ask("the one that was replaced, without its instance", member, group_instance_id=None)
    item.finish(committed=False)


def _two_producers(player: Player) -> None:
    """The later of two pending offsets in the log wins, in any order of the commits."""
    group = f"{PREFIX}.race"
    item, two = (Transactional(player, f"{PREFIX}.race.{name}").begun() for name in ("one", "two"))
    for at, producer in enumerate((item, two), 1):
        producer.add_offsets(None, group)
        producer.commit_offsets(f"race: producer {at}", group, {TOPIC: [offset(0, at)]})
    Committing(player, group, 9).ask("race: nobody's", topics={TOPIC: [offset(1, 3), offset(2, 3)]})
    item.commit_offsets("race: an older pending one", group, {TOPIC: [offset(1, 1)]})
    Committing(player, group, 9).ask("race: committed over a pending one", topics={TOPIC: [offset(1, 4)]})
    two.finish(committed=True)
    fetch(player, "race: after the second", 9, group, None)
    fetch(player, "race: after the second, stable", 9, group, None, require_stable=True)
    item.finish(committed=True)
    fetch(player, "race: after both", 9, group, None)


def _deleted(player: Player) -> None:
    """Deletions while an offset is pending."""
    group = f"{PREFIX}.deleted"
    item = Transactional(player, f"{PREFIX}.deleted").begun()
    Committing(player, group, 9).ask(None, topics={TOPIC: [offset(0, 1), offset(1, 1)]})
    item.add_offsets(None, group)
    item.commit_offsets(None, group, {TOPIC: [offset(0, 2)]})
    entries = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=entries)])
    player.ask("deleted: offsets", ApiKey.OFFSET_DELETE, 0, request)
    fetch(player, "deleted: left", 9, group, None)
    describe(player, "deleted: described", group)
    item.finish(committed=True)
    fetch(player, "deleted: committed after", 9, group, None)
    alone = f"{PREFIX}.alone"
    two = Transactional(player, f"{PREFIX}.alone").begun()
    two.add_offsets(None, alone)
    two.commit_offsets(None, alone, {TOPIC: [offset(0, 2)]})
    describe(player, "alone: a group of a pending offset", alone)
    player.ask("alone: deleted", ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[alone]))
    fetch(player, "alone: after it was deleted", 9, alone, None)
    two.finish(committed=True)
    fetch(player, "alone: committed after", 9, alone, None)
