"""DeleteGroups and OffsetDelete in every version and state of a group (GRP-27)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import Member, begin_script, complete, describe, subscription, until_joining
from tests.differential.play import Player

PREFIX = "diff.deleted"
TOPIC, OTHER, THIRD = f"{PREFIX}.topic", f"{PREFIX}.other", f"{PREFIX}.third"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for topic in (TOPIC, OTHER, THIRD):
        player.make_topic(topic, 2)
    # Another script may have committed offsets of the group without a name.
    player.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[""]))
    for version in range(3):
        _groups(player, version)
    _offsets_of_nobody(player)
    _offsets_of_members(player)
    _offsets_of_a_deleted_topic(player)


def _committed(player: Player, group: str, **more: object) -> None:
    topics = {TOPIC: [offset(0, 1), offset(1, 2)], OTHER: [offset(0, 3)], THIRD: [offset(0, 4)]}
    Committing(player, group, 9).ask(None, topics=topics, **more)  # type: ignore[arg-type]


def _groups(player: Player, version: int) -> None:
    def ask(what: str, *groups: str) -> None:
        request = DeleteGroupsRequest(groups_names=list(groups))
        player.ask(f"groups v{version}: {what}", ApiKey.DELETE_GROUPS, version, request)

    group = f"{PREFIX}.v{version}"
    ask("unknown", f"{group}.unknown")
    ask("empty group id", "")
    ask("none")
    _committed(player, f"{group}.simple")
    ask("offsets alone, and unknown, and empty", f"{group}.simple", f"{group}.unknown", "")
    ask("again", f"{group}.simple")
    fetch(player, f"groups v{version}: its offsets", 9, f"{group}.simple", None)
    item, two = Member(player, f"{group}.live", "one"), Member(player, f"{group}.live", "two")
    item.join(None)
    ask("a pending member", f"{group}.live")
    item.join(f"groups v{version}: the pending member after that")
    item.id = ""
    item.enter()
    ask("completing", f"{group}.live")
    item.sync(None, {item.id: b"all"})
    _committed(player, f"{group}.live", generation=item.generation, member=item.id)
    ask("stable", f"{group}.live")
    waiting = two.begin_enter(None)
    until_joining(two, 2)
    ask("preparing", f"{group}.live")
    item.join(None)
    two.take(waiting.answer())
    two.leave(None)
    item.leave(None)
    ask("a group twice", f"{group}.live", f"{group}.live")
    describe(player, f"groups v{version}: described", f"{group}.live")
    fetch(player, f"groups v{version}: offsets of what was live", 9, f"{group}.live", None)
    item.beat(f"groups v{version}: heartbeat of one that was in it")
    item.id = ""
    item.enter(f"groups v{version}: its first member again")


def _delete(player: Player, what: str, group: str, topics: dict[str, list[int]]) -> None:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics.items()
        ],
    )
    player.ask(f"offsets: {what}", ApiKey.OFFSET_DELETE, 0, request)


def _offsets_of_nobody(player: Player) -> None:
    group = f"{PREFIX}.nobodys"
    _delete(player, "unknown group", f"{group}.unknown", {TOPIC: [0]})
    _delete(player, "unknown group, unknown topic", f"{group}.unknown", {"unknown": [0]})
    _delete(player, "empty group id", "", {TOPIC: [0]})
    _committed(player, group)
    _delete(player, "nothing", group, {})
    _delete(player, "a topic without partitions", group, {TOPIC: []})
    _delete(player, "one", group, {TOPIC: [0]})
    _delete(player, "one again", group, {TOPIC: [0]})
    _delete(player, "unknown partition", group, {TOPIC: [1, 9, -1]})
    _delete(player, "unknown topic", group, {f"{PREFIX}.unknown": [0], OTHER: [0, 1]})
    _delete(player, "bad topic names", group, {"a/b": [0], "": [0]})
    fetch(player, "offsets: left", 9, group, None)
    _delete(player, "the last", group, {THIRD: [0]})
    describe(player, "offsets: the group after the last", group)
    _delete(player, "after the last", group, {THIRD: [0]})


def _offsets_of_members(player: Player) -> None:
    group = f"{PREFIX}.members"
    item, two = Member(player, group, "one"), Member(player, group, "two")
    item.protocols = {"range": subscription(TOPIC)}
    two.protocols = {"range": subscription(OTHER, version=1)}
    item.enter()
    _delete(player, "completing", group, {TOPIC: [0], OTHER: [0]})
    item.sync(None, {item.id: b"all"})
    _committed(player, group, generation=item.generation, member=item.id)
    _delete(player, "stable", group, {TOPIC: [0], OTHER: [0], THIRD: [0]})
    waiting = two.begin_enter(None)
    until_joining(two, 2)
    _committed(player, group, generation=item.generation, member=item.id)
    _delete(player, "preparing", group, {TOPIC: [0], OTHER: [0], THIRD: [0]})
    item.join(None)
    two.take(waiting.answer())
    _delete(player, "completing, two", group, {TOPIC: [0], OTHER: [0], THIRD: [0]})
    fetch(player, "offsets: left to members", 9, group, None)
    two.leave(None)
    item.leave(None)
    _delete(player, "empty", group, {TOPIC: [0, 1]})
    for kind, name, metadata in (("connect", "workers", subscription(TOPIC)), ("consumer", "unreadable", b"\x00")):
        member = Member(player, f"{PREFIX}.{name}", "one")
        member.protocol_type = kind
        member.protocols = {"range": metadata}
        complete(member)
        _committed(player, member.group, generation=member.generation, member=member.id)
        _delete(player, f"of {name}", member.group, {TOPIC: [0], OTHER: [0]})
        fetch(player, f"offsets: left of {name}", 9, member.group, None)


def _offsets_of_a_deleted_topic(player: Player) -> None:
    """They go with the topic, and do not come back with another of its name."""
    from brokers.engine.protocol.messages.topics import DeleteTopicsRequest

    group, topic = f"{PREFIX}.topics", f"{PREFIX}.brief"
    player.make_topic(topic)
    Committing(player, group, 9).ask(None, topics={topic: [offset(0, 1)], TOPIC: [offset(0, 2)]})
    player.call(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000))
    player.until_gone(topic)
    player.until(
        lambda: len(fetch(player, None, 9, group, None).groups[0].topics) == 1, "the offsets go with the topic"
    )
    fetch(player, "offsets: after the topic was deleted", 9, group, None)
    player.until(lambda: player.is_made(topic), "the topic made again")
    fetch(player, "offsets: after it was made again", 9, group, {topic: [0]})
