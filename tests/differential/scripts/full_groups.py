"""Groups of at most two members (`group.max.size`): who finds no seat, and who loses one (GRP-7)."""

from __future__ import annotations

from tests.differential.members import Member, begin_script, complete, describe, until_joining
from tests.differential.play import Player

PREFIX = "diff.full"
VERSIONS = range(10)
# The first at which a member is given an id before it may join, and at which it may name its instance.
ID_FIRST, WITH_INSTANCES = 4, 5


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in VERSIONS:
        _stable(player, version)
        _freed(player, version)
        _last_one_back(player, version)
        if version >= ID_FIRST:
            _more_ids_than_seats(player, version)
        if version >= WITH_INSTANCES:
            _instances(player, version)


def _stable(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.stable"
    item, two, three = (Member(player, group, name, version) for name in ("one", "two", "three"))
    complete(item, two)
    three.join(f"v{version}: a third")
    three.join(f"v{version}: a third that claims an id", member_id="nobody")
    three.join(f"v{version}: a third of another type", protocol_type="connect")
    three.join(f"v{version}: a third with a session too short", session_timeout_ms=1)
    item.beat(f"v{version}: the first hears nothing of it")
    two.beat(f"v{version}: nor does the second")
    two.join(f"v{version}: who is in joins again")
    describe(player, f"v{version}: a full group", group)


def _freed(player: Player, version: int) -> None:
    """A place that a member leaves is free for another one."""
    group = f"{PREFIX}.v{version}.freed"
    item, two, three = (Member(player, group, name, version) for name in ("one", "two", "three"))
    complete(item, two)
    three.join(f"v{version}: no seat yet")
    two.leave(f"v{version}: the second leaves")
    waiting = three.begin_enter(f"v{version}: the seat is taken")
    waiting.is_delayed()
    item.join(f"v{version}: the first follows")
    three.take(waiting.answer())
    two.join(f"v{version}: the second finds none")
    describe(player, f"v{version}: one and three", group)


def _last_one_back(player: Player, version: int) -> None:
    """While the members join, those count who have: a member of the last generation may come too late. Who leads then
    is anybody's guess.
    """
    group = f"{PREFIX}.v{version}.late"
    item, two, three = (Member(player, group, name, version) for name in ("one", "two", "three"))
    complete(item)
    second = two.begin_enter(None)
    until_joining(two, 2)
    third = three.begin_enter(None)
    until_joining(three, 3)
    item.join(f"v{version}: the first comes too late")
    generations = [late.take(waiting.answer()).generation_id for late, waiting in ((two, second), (three, third))]
    assert generations == [2, 2], generations
    item.beat(f"v{version}: and is no member any more")
    two.beat(f"v{version}: who came instead is one")


def _more_ids_than_seats(player: Player, version: int) -> None:
    """Ids are given out freely; a member that joins with one after the group is full is refused."""
    group = f"{PREFIX}.v{version}.ids"
    item, two, three = (Member(player, group, name, version) for name in ("one", "two", "three"))
    complete(item)
    for late in (two, three):
        late.join(f"v{version}: an id for {late.name}")
    second = two.begin_join(f"v{version}: the second with its id")
    second.is_delayed()
    first = item.begin_join(f"v{version}: the first follows the second, and both wait for the third")
    first.is_delayed()
    three.join(f"v{version}: the third with its id")
    item.take(first.answer())
    two.take(second.answer())
    three.join(f"v{version}: the third without an id", member_id="")
    describe(player, f"v{version}: one and two", group)


def _instances(player: Player, version: int) -> None:
    """A static member that replaces another one needs no additional place."""
    group = f"{PREFIX}.v{version}.instances"
    item, two = (Member(player, group, name, version, instance=name) for name in ("one", "two"))
    complete(item, two)
    Member(player, group, "three", version, instance="three").join(f"v{version}: a third instance")
    Member(player, group, "two", version, instance="two").join(f"v{version}: the second instance, started again")
    describe(player, f"v{version}: a full group of instances", group)
