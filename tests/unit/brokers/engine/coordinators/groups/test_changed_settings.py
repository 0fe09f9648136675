"""Settings of groups that an operator changes while the broker coordinates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.groups.members import SESSION_MS, Member, Shard, complete, error

OTHER = "ins-aaaaaaaa.other"


def change(shard: Shard, **settings: Any) -> None:
    shard.settings = replace(shard.settings, **settings)


def test_the_next_group_waits_as_long_as_the_delay_is_then() -> None:
    shard = Shard(initial_rebalance_delay_ms=3_000)
    before, after = Member(shard), Member(shard, group=OTHER)
    first = before.join()
    change(shard, initial_rebalance_delay_ms=500)
    second = after.join()

    shard.advance(500)
    assert after.take(second).generation == 1
    assert first.replies == [], "a wait that has begun ends when it was to end"
    shard.advance(2_500)
    assert before.take(first).generation == 1


def test_a_delay_that_is_raised_from_zero_is_waited_for() -> None:
    shard = Shard()
    member, late = Member(shard), Member(shard, group=OTHER)
    member.take(member.join())
    change(shard, initial_rebalance_delay_ms=3_000)
    call = late.join()

    shard.loop.advance(2_900)
    assert call.replies == []
    shard.advance(100)
    assert late.take(call).generation == 1


@pytest.mark.parametrize(
    "settings",
    [{"session_timeout_ms_min": SESSION_MS + 1}, {"session_timeout_ms_max": SESSION_MS - 1}],
    ids=["minimum", "maximum"],
)
def test_a_session_outside_new_bounds_is_refused_and_members_stay(settings: dict[str, int]) -> None:
    shard = Shard()
    member, newcomer = Member(shard), Member(shard, group=OTHER)
    complete(member)
    change(shard, **settings)

    assert error(newcomer.join()) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert member.heartbeat() == 0
    assert shard.state is GroupState.STABLE


def test_a_group_larger_than_a_new_limit_loses_the_surplus_when_it_next_rebalances() -> None:
    shard = Shard()
    first, second, third = (Member(shard) for _ in range(3))
    complete(first, second, third)
    change(shard, members_max=2)

    assert [member.heartbeat() for member in (first, second, third)] == [0, 0, 0]
    leader, *others = sorted((first, second, third), key=lambda member: not member.leads)
    calls = [member.join() for member in (leader, *others)]

    assert [error(call) for call in calls] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert len(shard.group().members) == 2
