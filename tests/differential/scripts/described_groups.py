"""DescribeGroups and ListGroups in every version, of groups in every state (GRP-29)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.differential.commits import Committing
from tests.differential.members import Member, begin_script, complete, until_joining
from tests.differential.play import Player

PREFIX = "diff.described"
TOPIC = f"{PREFIX}.topic"
STATES = ("preparing", "completing", "stable", "empty", "simple", "connect", "static", "pending")


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC)
    waiting, joining = _groups(player)
    for version in range(6):
        _described(player, version)
        _listed(player, version)
    waiting.join(None)
    joining.close()


def _groups(player: Player) -> tuple[Member, Player]:
    """A group in every state, named after it."""
    made = {name: Member(player, f"{PREFIX}.{name}", "one") for name in ("preparing", "stable", "empty", "completing")}
    for name in ("preparing", "stable", "empty"):
        complete(made[name])
    made["completing"].enter()
    made["empty"].leave(None)
    second = Member(player, f"{PREFIX}.preparing", "two")
    second.begin_enter(None)
    until_joining(second, 2)
    committing = Committing(player, f"{PREFIX}.simple", 9)
    committing.topic = TOPIC
    committing.ask(None)
    connect = Member(player, f"{PREFIX}.connect", "one")
    connect.protocol_type = "connect"
    complete(connect)
    complete(Member(player, f"{PREFIX}.static", "one", instance="first"), Member(player, f"{PREFIX}.static", "two"))
    Member(player, f"{PREFIX}.pending", "one").join(None)
    return made["preparing"], second.at


def _described(player: Player, version: int) -> None:
    def ask(what: str, *groups: str, operations: bool = False) -> None:
        request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
        player.ask(f"v{version}: {what}", ApiKey.DESCRIBE_GROUPS, version, request)

    for name in STATES:
        ask(name, f"{PREFIX}.{name}")
    ask("unknown", f"{PREFIX}.unknown")
    ask("no name", "")
    ask("none")
    ask("several", f"{PREFIX}.stable", f"{PREFIX}.unknown", f"{PREFIX}.empty")
    ask("one twice", f"{PREFIX}.empty", f"{PREFIX}.empty")
    if version >= 3:
        ask("operations", f"{PREFIX}.empty", operations=True)
        ask("operations of an unknown one", f"{PREFIX}.unknown", operations=True)


def _listed(player: Player, version: int) -> None:
    def ask(what: str, **filters: list[str]) -> None:
        player.ask(f"list v{version}: {what}", ApiKey.LIST_GROUPS, version, ListGroupsRequest(**filters))

    ask("all")
    if version >= 4:
        for state in ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "stable", "STABLE"):
            ask(f"state {state}", states_filter=[state])
        ask("two states", states_filter=["Stable", "Empty"])
        ask("an unknown state", states_filter=["Lively"])
        ask("a known and an unknown state", states_filter=["Lively", "Stable"])
        ask("an empty state", states_filter=[""])
    if version >= 5:
        for kind in ("classic", "Classic", "consumer", "share", "unknown", ""):
            ask(f"type {kind}", types_filter=[kind])
        ask("a state and a type", states_filter=["Empty"], types_filter=["classic"])
