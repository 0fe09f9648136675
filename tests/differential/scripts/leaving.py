"""LeaveGroup in every version: one by one, in batches, by instance id, and before the second join (GRP-15)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import LeaveGroupRequest, MemberIdentity
from tests.differential.members import Member, begin_script, complete, describe
from tests.differential.play import Player

PREFIX = "diff.leaving"
BATCHES_FROM = 3


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in range(6):
        _nowhere(player, version)
        _pending(player, version)
        _two(player, version)
        if version >= BATCHES_FROM:
            _batches(player, version)
            _static(player, version)


def left(player: Player, label: str, version: int, group: str, *members: tuple[str, str | None]) -> None:
    """Several members at once, as (member id, instance id)."""
    wanted = [MemberIdentity(member_id=id, group_instance_id=instance) for id, instance in members]
    player.ask(label, ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id=group, members=wanted))


def _nowhere(player: Player, version: int) -> None:
    member = Member(player, f"{PREFIX}.v{version}.nowhere", "one", version)
    member.id = "nobody"
    member.leave(f"v{version}: no such group")
    member.leave(f"v{version}: an empty group id", group_id="")
    member.leave(f"v{version}: no member, no such group", member_id="")


def _pending(player: Player, version: int) -> None:
    """A member that was given its id and has not come back with it."""
    group = f"{PREFIX}.v{version}.pending"
    member = Member(player, group, "one", max(version, 4))
    member.join(None)
    member.version = version
    describe(player, f"v{version}: a pending member, described", group)
    member.leave(f"v{version}: a pending member")
    member.leave(f"v{version}: a pending member again")
    member.version = max(version, 4)
    member.join(f"v{version}: comes back all the same")


def _two(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.two"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    complete(item, two)
    item.leave(f"v{version}: a member that nobody knows", members=[MemberIdentity(member_id="nobody")], member_id="n")
    two.leave(f"v{version}: the follower")
    describe(player, f"v{version}: after the follower left", group)
    two.leave(f"v{version}: the follower again")
    item.beat(f"v{version}: the leader is told")
    item.join(f"v{version}: the leader joins again")
    item.leave(f"v{version}: the leader, before its sync")
    describe(player, f"v{version}: after all left", group)
    item.leave(f"v{version}: from an empty group")
    item.id = ""
    item.enter(f"v{version}: back in an empty group")


def _batches(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.batches"
    names = ("one", "two", "three")
    item, two, three = (Member(player, group, name, version) for name in names)
    complete(item, two, three)
    left(player, f"v{version}: nobody", version, group)
    left(player, f"v{version}: strangers", version, group, ("nobody", None), ("", None), ("", "unknown"))
    left(player, f"v{version}: a member with an instance id", version, group, (three.id, "unknown"))
    left(player, f"v{version}: one of two is a stranger", version, group, (three.id, None), ("nobody", None))
    describe(player, f"v{version}: after one of two", group)
    left(player, f"v{version}: a member twice", version, group, (two.id, None), (two.id, None))
    left(player, f"v{version}: the last", version, group, (item.id, None))
    describe(player, f"v{version}: after the last", group)


def _static(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.static"
    item, two, three = (Member(player, group, name, max(version, 5), instance=name) for name in ("one", "two", "three"))
    complete(item, two, three)
    left(player, f"v{version}: an instance with another's id", version, group, (two.id, "three"))
    left(player, f"v{version}: an instance with a stranger's id", version, group, ("nobody", "three"))
    left(player, f"v{version}: an instance that nobody knows", version, group, (two.id, "unknown"))
    describe(player, f"v{version}: nobody has left", group)
    left(player, f"v{version}: by its instance alone", version, group, ("", "three"))
    left(player, f"v{version}: by its instance alone, again", version, group, ("", "three"))
    left(player, f"v{version}: by both and by the member id alone", version, group, (two.id, "two"), (item.id, None))
    describe(player, f"v{version}: all have left", group)
