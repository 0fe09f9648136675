"""Members that fall silent: sessions that end, joins and syncs that never come (GRP-10, GRP-12, GRP-14)."""

from __future__ import annotations

from tests.differential.members import Member, begin_script, complete, describe, until_joining, until_state
from tests.differential.play import Player

PREFIX = "diff.silent"
SHORT_MS = 1_000


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in (0, 9):
        _session(player, version)
        _pending(player, version)
        _never_joins_again(player, version)
        _never_syncs(player, version)
    _static(player)


def _session(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.session"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    complete(item, two)
    short = Member(player, f"{group}.short", "one", version)
    short.enter(session_timeout_ms=SHORT_MS)
    short.sync(None, {short.id: b"all"})
    until_state(short, lambda found: found.group_state == "Empty")
    short.beat(f"v{version}: heartbeat after the session")
    short.sync(f"v{version}: sync after the session")
    describe(player, f"v{version}: after the session", short.group)
    short.join(f"v{version}: back with the old id")
    short.id = ""
    short.enter(f"v{version}: back without it")


def _pending(player: Player, version: int) -> None:
    """A member that does not return with its given id is removed, and nobody waits for it."""
    if version < 4:
        return
    group = f"{PREFIX}.v{version}.pending"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    complete(item)
    two.join(f"v{version}: a member that stays away", session_timeout_ms=SHORT_MS)
    item.beat(f"v{version}: heartbeat beside it")
    waiting = item.begin_join(f"v{version}: the leader joins again beside it")
    waiting.is_delayed()
    item.take(waiting.answer())
    two.join(f"v{version}: too late with its id")


def _never_joins_again(player: Player, version: int) -> None:
    """A member that does not join again is left behind when the time to rebalance is over."""
    group = f"{PREFIX}.v{version}.behind"
    changes = {"rebalance_timeout_ms": SHORT_MS}
    if version == 0:
        changes = {"session_timeout_ms": SHORT_MS}
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    item.enter(**changes)
    item.sync(None, {item.id: b"all"})
    waiting = two.begin_enter(f"v{version}: a second, while the first stays away", **changes)
    two.take(waiting.answer())
    item.beat(f"v{version}: heartbeat of the one left behind")
    item.join(f"v{version}: join of the one left behind")
    describe(player, f"v{version}: without the one left behind", group)


def _never_syncs(player: Player, version: int) -> None:
    """A leader that does not bring the assignments within the time to rebalance goes, and the others start again."""
    group = f"{PREFIX}.v{version}.syncless"
    changes = {"rebalance_timeout_ms": SHORT_MS}
    if version == 0:
        changes = {"session_timeout_ms": SHORT_MS}
    item = Member(player, group, "one", version)
    item.enter(**changes)
    until_state(item, lambda found: found.group_state == "Empty")
    item.sync(f"v{version}: sync too late", {item.id: b"all"})
    item.beat(f"v{version}: heartbeat after it never synced")
    describe(player, f"v{version}: nobody synced", group)


def _static(player: Player) -> None:
    """A static member that stays away from a rebalance is kept until its session ends."""
    group = f"{PREFIX}.static"
    item, two = (Member(player, group, name, instance=name) for name in ("one", "two"))
    three = Member(player, group, "three")
    for member in (item, two, three):
        member.always = {"rebalance_timeout_ms": SHORT_MS}
    complete(item, two)
    waiting = three.begin_enter("static: a third joins")
    until_joining(three, 3)
    follows = item.begin_join("static: the leader follows, the other stays away")
    follows.is_delayed()
    item.take(follows.answer())
    three.take(waiting.answer())
    delayed = three.begin_sync("static: the third syncs")
    item.sync("static: the leader syncs", {member.id: b"for " + member.name.encode() for member in (item, two, three)})
    delayed.answer()
    describe(player, "static: stable again", group)
    two.beat("static: heartbeat of the one that stayed away")
    two.sync("static: sync of the one that stayed away")
    two.join("static: join of the one that stayed away")
