"""Committed offsets that are over, by a time of their own or by the broker's, and groups that go with them (GRP-26).

The broker looks for them often.
"""

from __future__ import annotations

import time

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import Member, begin_script, complete, describe, subscription
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.expiry"
TOPIC, OTHER = f"{PREFIX}.topic", f"{PREFIX}.other"
CLOCKS_PER_LOOK = 2
TWO_WEEKS_MS = 14 * 86_400_000
AN_HOUR_MS = 3_600_000


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    for name in (TOPIC, OTHER):
        player.make_topic(name, 4)
    for version in (2, 3, 4):
        _own_times(player, version)
    _commit_times(player)
    stable, was_stable, never = _members(player)
    pending = _pending(player)
    _look_twice(player)
    for version in (2, 3, 4):
        fetch(player, f"v{version}: left", 9, f"{PREFIX}.v{version}", None)
        _gone(player, f"v{version}, alone", f"{PREFIX}.v{version}.alone")
    fetch(player, "by commit time: left", 9, f"{PREFIX}.times", None)
    _gone(player, "by commit time, alone", f"{PREFIX}.times.alone")
    fetch(player, "of members: left", 9, stable.group, None)
    describe(player, "of members: described", stable.group)
    stable.beat("of members: heartbeat")
    fetch(player, "of members that left: left", 9, was_stable, None)
    _gone(player, "of members that left", was_stable)
    _gone(player, "members that never committed", never)
    fetch(player, "pending: left", 9, f"{PREFIX}.pending", None)
    fetch(player, "pending: left, stable", 9, f"{PREFIX}.pending", None, require_stable=True)
    pending.finish(committed=False)
    _look_twice(player)
    fetch(player, "aborted: left", 9, f"{PREFIX}.pending", None)
    _gone(player, "aborted", f"{PREFIX}.pending")


def _own_times(player: Player, version: int) -> None:
    group = f"{PREFIX}.v{version}"
    for index, retention_ms in enumerate((1, AN_HOUR_MS, -1, 0)):
        committing = Committing(player, group, version)
        committing.ask(f"v{version}: {retention_ms}", topics={TOPIC: [offset(index, 5)]}, retention_ms=retention_ms)
    Committing(player, group, version).ask(None, topics={OTHER: [offset(0, 6)]}, retention_ms=-2)
    Committing(player, f"{group}.alone", version).ask(None, topics={TOPIC: [offset(0, 5)]}, retention_ms=1)


def _commit_times(player: Player) -> None:
    """Version 1 says when it was committed."""
    long_ago_ms = int(time.time() * 1000) - TWO_WEEKS_MS
    old = offset(0, 5, commit_timestamp=long_ago_ms)
    recent = offset(1, 6, commit_timestamp=int(time.time() * 1000) - AN_HOUR_MS)
    Committing(player, f"{PREFIX}.times", 1).ask("by commit time", topics={TOPIC: [old, recent]})
    Committing(player, f"{PREFIX}.times.alone", 1).ask(None, topics={TOPIC: [old]})


def _members(player: Player) -> tuple[Member, str, str]:
    stable = Member(player, f"{PREFIX}.stable", "one")
    stable.protocols = {"range": subscription(TOPIC)}
    complete(stable)
    left = Member(player, f"{PREFIX}.left", "one")
    complete(left)
    for member in (stable, left):
        for retention_ms, index in ((1, 0), (-1, 1)):
            committing = Committing(player, member.group, 4)
            topics = {TOPIC: [offset(index, 5)], OTHER: [offset(index, 6)]}
            committing.ask(
                None, topics=topics, generation=member.generation, member=member.id, retention_ms=retention_ms
            )
    left.leave(None)
    never = Member(player, f"{PREFIX}.never", "one")
    complete(never)
    never.leave(None)
    return stable, left.group, never.group


def _pending(player: Player) -> Transactional:
    group = f"{PREFIX}.pending"
    item = Transactional(player, group).begun()
    item.add_offsets(None, group)
    item.commit_offsets(None, group, {TOPIC: [offset(0, 9)]})
    Committing(player, group, 4).ask(None, topics={TOPIC: [offset(0, 5), offset(1, 5)]}, retention_ms=1)
    return item


def _look_twice(player: Player) -> None:
    """Until the broker has looked at everything again: what is over by now is gone."""
    for number in range(CLOCKS_PER_LOOK):
        clock = f"{PREFIX}.clock.{number}"
        Committing(player, clock, 4).ask(None, topics={TOPIC: [offset(0, 1)]}, retention_ms=1)
        player.until(lambda clock=clock: not fetch(player, None, 9, clock, None).groups[0].topics, "the offset is over")


def _gone(player: Player, what: str, group: str) -> None:
    describe(player, f"{what}: described", group)
    request = DeleteGroupsRequest(groups_names=[group])
    player.ask(f"{what}: deleted", ApiKey.DELETE_GROUPS, 2, request)
