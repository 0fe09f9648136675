"""Static members (JoinGroup 5…9): replaced, fenced, and what of that leads to a rebalance (GRP-18…20)."""

from __future__ import annotations

from tests.differential.commits import Committing
from tests.differential.members import Member, begin_script, complete, describe, says, until_joining
from tests.differential.play import Player

PREFIX = "diff.static"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in range(5, 10):
        _alone(player, version)
        _stable(player, version)
        _follower(player, version)
        _preparing(player, version)
        _completing(player, version)
        _empty(player, version)


def _successor(member: Member) -> Member:
    """Returns a restarted member of the same instance, which has no member id."""
    return Member(member.at, member.group, member.name, member.version, member.instance)


def _asks_all(member: Member, label: str) -> None:
    """Every call that a fenced member can make."""
    member.beat(f"{label}: heartbeat")
    member.sync(f"{label}: sync")
    member.join(f"{label}: join")
    Committing(member.at, member.group, min(member.version + 2, 9)).ask(
        f"{label}: commit", generation=member.generation, member=member.id, instance=member.instance
    )
    member.leave(f"{label}: leave")


def _alone(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.alone"
    item = Member(player, group, "one", version, instance="one")
    item.join(f"v{version}: an id for an instance that nobody knows", member_id="nobody")
    item.join(f"v{version}: an empty instance", group_instance_id="")
    item.join(f"v{version}: a first member")
    describe(player, f"v{version}: a first member, described", group)
    item.sync(f"v{version}: sync", {item.id: b"all"})
    item.beat(f"v{version}: heartbeat without the instance", group_instance_id=None)
    item.beat(f"v{version}: heartbeat of an instance that nobody knows", group_instance_id="unknown")
    item.join(f"v{version}: the leader again, with its id")
    item.sync(f"v{version}: sync again", {item.id: b"all"})
    item.join(f"v{version}: with its id and without the instance", group_instance_id=None)
    item.join(f"v{version}: with its id and another instance", group_instance_id="unknown")
    two = Member(player, group, "two", version, instance="two")
    two.join(f"v{version}: another instance with the first's id", member_id=item.id)


def _stable(player: Player, version: int) -> None:
    """The leader of a stable group comes back: with the same protocols, then with others."""
    group = f"{PREFIX}.v{version}.stable"
    item, two = (Member(player, group, name, version, instance=name) for name in ("one", "two"))
    complete(item, two)
    again = _successor(item)
    again.join(f"v{version}, stable: the leader comes back")
    describe(player, f"v{version}, stable: the leader came back", group)
    two.beat(f"v{version}, stable: the follower is not told")
    again.sync(f"v{version}, stable: its assignment is kept")
    _asks_all(item, f"v{version}, stable: fenced")
    third = _successor(item)
    asked = third.begin_join(f"v{version}, stable: with other protocols", protocols={"range": says("changed")})
    asked.is_delayed()
    two.beat(f"v{version}, stable: the follower is told")
    two.join(f"v{version}, stable: the follower joins")
    third.take(asked.answer())
    describe(player, f"v{version}, stable: after the rebalance", group)


def _follower(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.follower"
    item, two = (Member(player, group, name, version, instance=name) for name in ("one", "two"))
    complete(item, two)
    again = _successor(two)
    again.join(f"v{version}, follower: comes back")
    again.sync(f"v{version}, follower: its assignment is kept")
    again.beat(f"v{version}, follower: heartbeat")
    item.beat(f"v{version}, follower: the leader is not told")
    two.beat(f"v{version}, follower: fenced")
    again.join(f"v{version}, follower: joins again with its id")
    item.beat(f"v{version}, follower: the leader still is not told")
    other = _successor(two)
    other.protocols = {"sticky": says("two"), "range": says("two")}
    other.join(f"v{version}, follower: with one protocol more")
    describe(player, f"v{version}, follower: described", group)


def _preparing(player: Player, version: int) -> None:
    """A member that is replaced while its join waits gets a fencing error."""
    group = f"{PREFIX}.v{version}.preparing"
    item, two = (Member(player, group, name, version, instance=name) for name in ("one", "two"))
    complete(item)
    waiting = two.begin_join(f"v{version}, preparing: replaced while it waits")
    until_joining(two, 2)
    again = _successor(two)
    replaced = again.begin_join(f"v{version}, preparing: the one in its place")
    waiting.answer()
    replaced.is_delayed()
    item.join(f"v{version}, preparing: the leader follows")
    again.take(replaced.answer())
    describe(player, f"v{version}, preparing: described", group)


def _completing(player: Player, version: int) -> None:
    """Replaced between join and sync."""
    group = f"{PREFIX}.v{version}.completing"
    item, two = (Member(player, group, name, version, instance=name) for name in ("one", "two"))
    complete(item)
    waiting = two.begin_join(None)
    until_joining(two, 2)
    item.join(None)
    two.take(waiting.answer())
    delayed = two.begin_sync(f"v{version}, completing: a sync that waits")
    delayed.is_delayed()
    again = _successor(two)
    replaced = again.begin_join(f"v{version}, completing: the one in its place")
    delayed.answer()
    replaced.is_delayed()
    item.beat(f"v{version}, completing: the leader is told")
    item.join(f"v{version}, completing: the leader follows")
    again.take(replaced.answer())
    _asks_all(two, f"v{version}, completing: fenced")


def _empty(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.empty"
    item = Member(player, group, "one", version, instance="one")
    complete(item)
    item.leave(f"v{version}, empty: leaves")
    item.beat(f"v{version}, empty: heartbeat")
    item.join(f"v{version}, empty: back with the old id")
    again = _successor(item)
    again.join(f"v{version}, empty: back without an id")
    describe(player, f"v{version}, empty: described", group)
