"""SyncGroup and Heartbeat in every version and state of a group (GRP-12, GRP-13)."""

from __future__ import annotations

from tests.differential.members import Member, begin_script, complete, describe, until_joining
from tests.differential.play import Player

PREFIX = "diff.syncing"
# JoinGroup's version, with which SyncGroup's (up to 5) and Heartbeat's (up to 4) go.
VERSIONS = range(6)
TYPES_FROM = 5


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in VERSIONS:
        _nowhere(player, version)
        _states(player, version)
        _assignments(player, version)
        if version >= TYPES_FROM:
            _types(player, version)


def _everything(member: Member, label: str) -> None:
    """A heartbeat and a sync: right, and wrong in one place each."""
    wrong_place: dict[str, dict[str, object]] = {
        "the generation before": {"generation_id": member.generation - 1},
        "a generation ahead": {"generation_id": member.generation + 1},
        "generation -1": {"generation_id": -1},
        "a member that nobody knows": {"member_id": "nobody"},
        "no member": {"member_id": ""},
        "an empty group id": {"group_id": ""},
    }
    if member.version >= 5:
        wrong_place["an instance that nobody knows"] = {"group_instance_id": "unknown"}
    for what, changes in wrong_place.items():
        member.beat(f"{label}: heartbeat, {what}", **changes)
        member.sync(f"{label}: sync, {what}", **changes)


def _nowhere(player: Player, version: int) -> None:
    member = Member(player, f"{PREFIX}.v{version}.nowhere", "one", version)
    member.id = "nobody"
    member.beat(f"v{version}: a heartbeat to no group", generation_id=1)
    member.sync(f"v{version}: a sync to no group", generation_id=1)
    member.beat(f"v{version}: a heartbeat to no group, generation -1", generation_id=-1)
    member.sync(f"v{version}: a sync to no group, generation -1", generation_id=-1)
    member.sync(f"v{version}: a sync to no group and of no type", generation_id=1, protocol_type=None)


def _states(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.states"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    item.enter()
    item.beat(f"v{version}, completing: heartbeat")
    _everything(item, f"v{version}, completing")
    item.sync(f"v{version}, completing: sync of the leader", {item.id: b"all"})
    item.beat(f"v{version}, stable: heartbeat")
    item.sync(f"v{version}, stable: sync again", {item.id: b"something else"})
    _everything(item, f"v{version}, stable")
    waiting = two.begin_enter(None)
    until_joining(two, 2)
    item.beat(f"v{version}, preparing: heartbeat")
    item.sync(f"v{version}, preparing: sync", {item.id: b"all"})
    _everything(item, f"v{version}, preparing")
    describe(player, f"v{version}, preparing: described", group)
    item.join(None)
    two.take(waiting.answer())
    follower = two.begin_sync(f"v{version}, completing: sync of a follower")
    follower.is_delayed()
    item.beat(f"v{version}, completing: heartbeat of one of two")
    item.sync(f"v{version}, completing: sync of the leader of two", {item.id: b"one's", two.id: b"two's"})
    follower.answer()
    two.sync(f"v{version}, stable: sync of the follower again")
    describe(player, f"v{version}, stable: two described", group)
    two.leave(None)
    two.beat(f"v{version}, preparing: heartbeat of one that left")
    two.sync(f"v{version}, preparing: sync of one that left")
    item.leave(None)
    item.beat(f"v{version}, empty: heartbeat")
    item.sync(f"v{version}, empty: sync")
    _everything(item, f"v{version}, empty")
    describe(player, f"v{version}, empty: described", group)


def _assignments(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.assignments"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    complete(item)
    waiting = two.begin_enter(None)
    until_joining(two, 2)
    item.join(None)
    two.take(waiting.answer())
    first = two.begin_sync(f"v{version}: a follower that assigns", {item.id: b"x", two.id: b"y"})
    first.is_delayed()
    item.sync(f"v{version}: assigned to strangers alone", {"nobody": b"x"})
    first.answer()
    describe(player, f"v{version}: assigned to strangers alone, described", group)
    item.beat(f"v{version}: a heartbeat in the name of the other", member_id=two.id)


def _types(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.types"
    item = Member(player, group, "one", version)
    item.enter()
    for what, kind, name in (
        ("another type", "connect", "range"),
        ("another name", "consumer", "sticky"),
        ("no type", None, "range"),
        ("no name", "consumer", None),
        ("neither", None, None),
        ("empty", "", ""),
    ):
        item.sync(f"v{version}: {what}", {item.id: b"a"}, protocol_type=kind, protocol_name=name)
        item.sync(f"v{version}: {what}, no group id", group_id="", protocol_type=kind, protocol_name=name)
    item.sync(f"v{version}: the right ones", {item.id: b"a"})
