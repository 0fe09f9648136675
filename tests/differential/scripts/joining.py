"""JoinGroup in every version, one member at a time: who is let in, who is sent away, and with what (GRP-6…10)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from tests.differential.members import SESSION_MS, Member, begin_script, complete, describe, says
from tests.differential.play import Player

PREFIX = "diff.joining"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for version in range(10):
        _refused(player, version)
        _alone(player, version)
        _completing(player, version)
        _others_protocols(player, version)
    _empty_client_id(player)


def _refused(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.refused"

    def ask(what: str, **changes: object) -> None:
        wanted = {
            "group_id": group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=says("m"))],
            **changes,
        }
        request = JoinGroupRequest(**wanted)  # type: ignore[arg-type]
        player.ask(f"v{version}: {what}", ApiKey.JOIN_GROUP, version, request)

    ask("an empty group id", group_id="")
    ask("a member that nobody knows", member_id="nobody")
    ask("a session too short", session_timeout_ms=999)
    ask("a session of 0", session_timeout_ms=0)
    ask("a negative session", session_timeout_ms=-1)
    ask("a session too long", session_timeout_ms=1_800_001)
    ask("no protocols", protocols=[])
    ask("no protocol type", protocol_type="")
    ask("no protocols, a member that nobody knows", protocols=[], member_id="nobody")
    ask("everything wrong", group_id="", session_timeout_ms=0, protocols=[], protocol_type="", member_id="nobody")
    describe(player, f"v{version}: refused by nobody's fault", group)


def _alone(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}.alone"
    item = Member(player, group, "one", version)
    item.join(f"v{version}: a first member")
    describe(player, f"v{version}: after a first join", group)
    if item.generation < 0:
        item.beat(f"v{version}: a heartbeat before the second join", generation_id=0)
        item.beat(f"v{version}: a heartbeat before the second join, generation -1")
        item.sync(f"v{version}: a sync before the second join", generation_id=0)
        item.join(f"v{version}: with the id given")
    describe(player, f"v{version}: after the join", group)
    item.join(f"v{version}: again before the sync")
    item.join(f"v{version}: otherwise before the sync", protocols={"range": says("changed")})
    item.sync(f"v{version}: sync", {item.id: b"all"})
    item.join(f"v{version}: the leader joins again")
    item.sync(f"v{version}: sync again", {item.id: b"all again"})
    item.join(f"v{version}: with two protocols", protocols={"sticky": says("s"), "range": says("r")})
    item.join(f"v{version}: with other protocols", protocols={"other": says("o")})
    item.join(f"v{version}: with no protocols", protocols={})
    item.join(f"v{version}: with another type", protocol_type="connect")
    item.join(f"v{version}: with an empty type", protocol_type="")
    item.join(f"v{version}: a protocol twice", protocols={"range": says("r"), "range ": says("r")})
    item.join(f"v{version}: longest session", session_timeout_ms=1_800_000)
    item.join(f"v{version}: shortest session", session_timeout_ms=1_000)
    item.join(f"v{version}: a usual session", session_timeout_ms=SESSION_MS)
    item.join(f"v{version}: no time to rebalance", rebalance_timeout_ms=0)
    item.join(f"v{version}: a negative time to rebalance", rebalance_timeout_ms=-1)
    item.join(f"v{version}: an id that nobody has", member_id=f"{item.id}x")
    item.leave(f"v{version}: leaves")
    item.join(f"v{version}: back with the old id")
    describe(player, f"v{version}: after all that", group)


def _completing(player: Player, version: int) -> None:
    """Two members between join and sync."""
    group = f"{PREFIX}.v{version}.completing"
    item, two = Member(player, group, "one", version), Member(player, group, "two", version)
    complete(item)
    waiting = two.begin_enter(f"v{version}: a second member")
    waiting.is_delayed()
    item.beat(f"v{version}: the first is told")
    item.join(f"v{version}: the first joins again")
    two.take(waiting.answer())
    two.join(f"v{version}: the second again, unchanged")
    item.join(f"v{version}: the first again, unchanged")
    again = two.begin_join(f"v{version}: the second again, changed", protocols={"range": says("changed")})
    again.is_delayed()
    describe(player, f"v{version}: a rebalance begun by a change", group)
    item.join(f"v{version}: the first follows")
    two.take(again.answer())


def _others_protocols(player: Player, version: int) -> None:
    """Nobody who has nothing in common with the members; the choice is what all support and most want."""
    group = f"{PREFIX}.v{version}.protocols"
    item = Member(player, group, "one", version)
    item.protocols = {"sticky": says("s1"), "range": says("r1")}
    complete(item)
    stranger = Member(player, group, "stranger", version)
    stranger.join(f"v{version}: nothing in common", protocols={"other": says("o")})
    stranger.join(f"v{version}: another type", protocol_type="connect", protocols={"range": says("r")})
    two, three = Member(player, group, "two", version), Member(player, group, "three", version)
    two.protocols = {"range": says("r2"), "sticky": says("s2"), "cooperative-sticky": says("c2")}
    three.protocols = {"cooperative-sticky": says("c3"), "range": says("r3"), "sticky": says("s3")}
    second, third = two.begin_enter(f"v{version}: wants range"), None
    third = three.begin_enter(f"v{version}: wants range second")
    third.is_delayed()
    stranger.join(f"v{version}: only what two of three have", protocols={"cooperative-sticky": says("x")})
    item.join(f"v{version}: wanted sticky")
    two.take(second.answer())
    three.take(third.answer())


def _empty_client_id(player: Player) -> None:
    for version in (0, 4, 5, 9):
        for what, client_id in (("an empty client id", ""), ("no client id", None)):
            member = Member(player, f"{PREFIX}.v{version}.{what}", "one", version)
            member.at.client_id = client_id
            member.join(f"v{version}: {what}")
            member.enter(f"v{version}: {what}, then")
            describe(player, f"v{version}: {what}, described", member.group)
