"""Another coordinator restores the groups from the log (GRP-24, GRP-25)."""

from __future__ import annotations

from brokers.engine.coordinators.groups import expiry
from brokers.engine.coordinators.groups.formats import encode_group_key
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.interfaces import StoredBatch
from brokers.engine.coordinators.result import CoordinatorResult, StateRecord
from tests.unit.brokers.engine.coordinators.groups.members import GROUP, SESSION_MS, Member, Shard, complete, error
from tests.unit.brokers.engine.coordinators.groups.test_subscriptions import subscription

NOT_COORDINATOR, UNKNOWN, REBALANCING = 16, 25, 27


def test_members_go_on_under_the_next_coordinator_without_noticing() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard, instance="pod")
    complete(leader, follower)
    before = shard.machine.describe(GROUP).reply

    shard.reload()

    assert shard.machine.describe(GROUP).reply == before
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert shard.group().leader == leader.id
    assert shard.group().static_members == {"pod": follower.id}


def test_members_have_a_whole_session_to_find_the_next_coordinator_and_no_more() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    shard.advance(SESSION_MS - 100)
    shard.reload()

    shard.advance(SESSION_MS - 1_000)
    assert first.heartbeat() == 0
    shard.advance(1_000)

    assert (first.heartbeat(), second.heartbeat()) == (REBALANCING, UNKNOWN)


def test_a_generation_that_was_not_written_down_is_forgotten_with_its_coordinator() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first)
    join_reply = second.join()
    first.take(first.join())
    second.take(join_reply)

    shard.reload()

    assert (shard.state, shard.group().generation) == (GroupState.STABLE, 1)
    assert first.heartbeat() == 22
    assert second.heartbeat() == UNKNOWN


def test_waiting_members_learn_that_another_broker_coordinates() -> None:
    shard = Shard()
    first, second, third = Member(shard), Member(shard), Member(shard)
    complete(first, second)
    joining = third.join()
    another = Member(shard, group="ins-bbbbbbbb.h")
    late = Member(shard, group="ins-bbbbbbbb.h")
    complete(another)
    join_reply = late.join()
    another.take(another.join())
    late.take(join_reply)
    syncing = late.sync()

    shard.runtime.resign(0)

    assert (error(joining), error(syncing)) == (NOT_COORDINATOR, NOT_COORDINATOR)


def test_a_group_whose_members_came_to_choose_another_protocol_is_loaded_with_that_one() -> None:
    shard = Shard()
    eager = ("range", subscription("orders"))
    stays = Member(shard, protocols=(("cooperative-sticky", subscription("orders")), eager))
    leaves = Member(shard, protocols=(eager,))
    complete(stays, leaves)
    leaves.leave()
    complete(stays)
    assert shard.group().protocol == "cooperative-sticky"
    before = shard.machine.describe(GROUP).reply

    shard.reload()

    assert shard.machine.describe(GROUP).reply == before
    assert stays.heartbeat() == 0


def test_subscriptions_and_timeouts_of_the_last_record_count_after_a_load() -> None:
    shard = Shard()
    member = Member(shard, protocols=(("range", subscription("orders")),))
    complete(member)
    member.protocols = (("range", subscription("orders", "payments")),)
    member.more = {"session_timeout_ms": 2 * SESSION_MS}
    complete(member)

    shard.reload()

    assert expiry.subscribed_topics(shard.group()) == {"ins-aaaaaaaa.orders", "ins-aaaaaaaa.payments"}
    shard.advance(SESSION_MS)
    assert member.heartbeat() == 0


def test_an_empty_group_is_empty_after_a_load() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    member.leave()
    timestamp_ms = shard.group().state_timestamp_ms

    shard.reload()

    assert (shard.state, shard.group().generation, shard.group().state_timestamp_ms) == (
        GroupState.EMPTY,
        2,
        timestamp_ms,
    )
    assert (shard.group().protocol_type, shard.group().leader) == ("consumer", None)


def test_a_deleted_group_is_gone_and_may_come_back_as_another() -> None:
    shard = Shard()
    complete(Member(shard))
    shard.ask(lambda machine, now, ticket: CoordinatorResult(0, [StateRecord(encode_group_key(GROUP), None)]))

    shard.reload()

    assert shard.machine.groups.get(GROUP) is None
    member = Member(shard)
    assert member.take(member.join()).generation == 1


def test_an_unreadable_record_does_not_keep_the_rest_from_being_loaded() -> None:
    shard = Shard()
    complete(Member(shard))
    end = shard.log.end_offset
    odd = [
        (end, b"\x00\x63never seen", b""),
        (end + 1, b"", b""),
        (end + 2, encode_group_key(GROUP), b"\x00\x03cut off"),
        (end + 3, encode_group_key(GROUP), b"\x00\x77"),
    ]
    shard.log.batches.append(StoredBatch(end, end + 3, odd))

    shard.reload()

    assert shard.state is GroupState.STABLE
