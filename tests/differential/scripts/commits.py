"""OffsetCommit and OffsetFetch in every version (GRP-21…23, GRP-40)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.offsets import OffsetFetchRequest
from tests.differential.commits import GROUPS_FROM, Committing, fetch, of_group, offset
from tests.differential.members import Member, begin_script, describe, until_joining
from tests.differential.play import Player

PREFIX = "diff.commits"
TOPIC, OTHER = f"{PREFIX}.topic", f"{PREFIX}.other"
METADATA_BYTES_MAX = 4096


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 4)
    player.make_topic(OTHER, 2)
    for version in range(10):
        _nobodys(player, version)
        if version >= 1:
            _members(player, version)
    for version in range(10):
        _fetched(player, version)


def _committing(player: Player, group: str, version: int) -> Committing:
    committing = Committing(player, group, version)
    committing.topic = TOPIC
    return committing


def _nobodys(player: Player, version: int) -> None:
    """Commits to groups without members."""
    group = f"{PREFIX}.v{version}.nobodys"
    committing = _committing(player, group, version)
    at = f"v{version}, no members"
    committing.ask(f"{at}: a commit")
    describe(player, f"{at}: described", group)
    committing.ask(f"{at}: one more", offset(0, 7, "seven"))
    committing.ask(f"{at}: back", offset(0, 3))
    committing.ask(f"{at}: several", offset(0, 1), offset(1, 2, None), offset(2, 3, "three"))
    committing.ask(f"{at}: a partition twice", offset(3, 1), offset(3, 2))
    committing.ask(f"{at}: two topics", topics={TOPIC: [offset(0, 4)], OTHER: [offset(1, 5)]})
    committing.ask(f"{at}: a topic without partitions", topics={TOPIC: []})
    committing.ask(f"{at}: nothing", topics={})
    committing.ask(f"{at}: offset -1", offset(1, -1))
    committing.ask(f"{at}: offset -5", offset(1, -5))
    committing.ask(f"{at}: the largest offset", offset(1, (1 << 63) - 1))
    committing.ask(f"{at}: metadata of the longest", offset(1, 2, "x" * METADATA_BYTES_MAX))
    committing.ask(f"{at}: metadata too long", offset(1, 2, "x" * (METADATA_BYTES_MAX + 1)), offset(2, 9))
    committing.ask(f"{at}: metadata long in bytes alone", offset(1, 2, "组" * (METADATA_BYTES_MAX // 3 + 1)))
    committing.ask(f"{at}: unknown partition", offset(9, 1), offset(0, 4))
    committing.ask(f"{at}: negative partition", offset(-1, 1))
    committing.ask(f"{at}: unknown topic", topics={f"{PREFIX}.unknown": [offset(0, 1)], TOPIC: [offset(0, 4)]})
    committing.ask(f"{at}: bad topic name", topics={"a/b": [offset(0, 1)]})
    committing.ask(f"{at}: empty topic name", topics={"": [offset(0, 1)]})
    committing.ask(f"{at}: an empty group id", group="")
    committing.ask(f"{at}: an empty group id and an unknown topic", group="", topics={"unknown": [offset(0, 1)]})
    if version >= 1:
        committing.ask(f"{at}: a member", member="nobody")
        committing.ask(f"{at}: a generation", generation=0)
        committing.ask(f"{at}: a generation and a member", generation=3, member="nobody")
        committing.ask(f"{at}: a generation, unknown group", generation=0, group=f"{group}.unknown")
        committing.ask(f"{at}: a member, unknown group", member="nobody", group=f"{group}.unknown")
        committing.ask(f"{at}: generation -2, unknown group", generation=-2, group=f"{group}.another")
    if version == 1:
        for time_ms in (-1, -2, 0, 1_600_000_000_000):
            committing.ask(f"{at}: time {time_ms}", offset(1, 2, commit_timestamp=time_ms))
    if 2 <= version <= 4:
        committing.ask(f"{at}: kept for a day", offset(1, 2), retention_ms=86_400_000)
        committing.ask(f"{at}: kept for no time", offset(2, 2), retention_ms=0)
    if version >= 6:
        for epoch in (0, 5, -2):
            committing.ask(f"{at}: leader epoch {epoch}", offset(1, 2, committed_leader_epoch=epoch))
    if version >= 7:
        committing.ask(f"{at}: an instance", instance="nobody")
    fetch(player, f"{at}: all that is left", 9, group, None)


def _members(player: Player, version: int) -> None:
    """Commits to a group in every state."""
    group = f"{PREFIX}.v{version}.members"
    committing = _committing(player, group, version)
    item, two = Member(player, group, "one"), Member(player, group, "two")
    item.enter()
    _everything(committing, item, f"v{version}, completing")
    item.sync(None, {item.id: b"all"})
    _everything(committing, item, f"v{version}, stable")
    waiting = two.begin_enter(None)
    until_joining(two, 2)
    _everything(committing, item, f"v{version}, preparing")
    committing.ask(f"v{version}, preparing: by one that joins", member=two.id, generation=item.generation)
    item.join(None)
    two.take(waiting.answer())
    two.leave(None)
    item.leave(None)
    _everything(committing, item, f"v{version}, empty")
    fetch(player, f"v{version}, empty: all that is left", 9, group, None)


def _everything(committing: Committing, member: Member, at: str) -> None:
    known = {"generation": member.generation, "member": member.id}
    committing.ask(f"{at}: a commit", **known)
    committing.ask(f"{at}: the generation before", **{**known, "generation": member.generation - 1})
    committing.ask(f"{at}: a generation ahead", **{**known, "generation": member.generation + 1})
    committing.ask(f"{at}: generation -1", **{**known, "generation": -1})
    committing.ask(f"{at}: generation -2", **{**known, "generation": -2})
    committing.ask(f"{at}: a stranger", **{**known, "member": "nobody"})
    committing.ask(f"{at}: no member", **{**known, "member": ""})
    committing.ask(f"{at}: nobody's")
    committing.ask(f"{at}: unknown topic", **known, topics={f"{PREFIX}.unknown": [offset(0, 1)]})
    committing.ask(f"{at}: metadata too long", offset(0, 2, "x" * (METADATA_BYTES_MAX + 1)), **known)
    if committing.version >= 7:
        committing.ask(f"{at}: an instance that nobody knows", **known, instance="nobody")


def _fetched(player: Player, version: int) -> None:
    group = f"{PREFIX}.fetched.v{version}"
    at = f"fetch v{version}"
    _committing(player, group, min(version, 1)).ask(None, offset(0, 3, "three"), offset(1, 4, None))
    if version:
        _committing(player, group, 9).ask(None, topics={OTHER: [offset(1, 5, "five", committed_leader_epoch=2)]})

    def ask(what: str, topics: dict[str, list[int]] | None, group: str = group, **more: object) -> None:
        fetch(player, f"{at}: {what}", version, group, topics, **more)

    ask("one", {TOPIC: [0]})
    ask("several", {TOPIC: [0, 1, 2], OTHER: [0, 1]})
    ask("a partition twice", {TOPIC: [0, 0]})
    ask("a topic without partitions", {TOPIC: []})
    ask("unknown partition", {TOPIC: [0, 9, -1]})
    ask("unknown topic", {f"{PREFIX}.unknown": [0]})
    ask("bad topic name", {"a/b": [0], "": [0]})
    ask("nothing", {})
    ask("unknown group", {TOPIC: [0]}, group=f"{group}.unknown")
    ask("an empty group id", {TOPIC: [0]}, group="")
    if version >= 2:
        ask("all", None)
        ask("all of an unknown group", None, group=f"{group}.unknown")
        ask("all of an empty group id", None, group="")
    if version >= 7:
        ask("stable ones", {TOPIC: [0, 2]}, require_stable=True)
        ask("all stable ones", None, require_stable=True)
    if version >= GROUPS_FROM:
        _several_groups(player, version, group, at)


def _several_groups(player: Player, version: int, group: str, at: str) -> None:
    others = f"{PREFIX}.fetched.v{version - 1}"
    for what, groups in {
        "two groups": [of_group(others, {TOPIC: [0]}), of_group(group, None)],
        "a group twice": [of_group(group, {TOPIC: [0]}), of_group(group, {TOPIC: [1]})],
        "a known and an unknown group": [of_group(group, {TOPIC: [0]}), of_group(f"{group}.unknown", {TOPIC: [0]})],
        "a known and an empty group id": [of_group(group, {TOPIC: [0]}), of_group("", {TOPIC: [0]})],
    }.items():
        player.ask(f"{at}: {what}", ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=groups))
    player.ask(f"{at}: no groups", ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(), may_be_silent=True)
    if version >= 9:
        for what, more in {
            "a member": {"member_id": "nobody"},
            "a member and its epoch": {"member_id": "nobody", "member_epoch": 3},
            "an epoch": {"member_epoch": 3},
            "member epoch 0": {"member_id": "", "member_epoch": 0},
        }.items():
            asked = OffsetFetchRequest(groups=[of_group(group, {TOPIC: [0]}, **more)])
            player.ask(f"{at}: {what}", ApiKey.OFFSET_FETCH, version, asked)
