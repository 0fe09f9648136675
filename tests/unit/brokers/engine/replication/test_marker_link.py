"""Markers reach the current leaders of all partitions of a transaction (TXN-12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from brokers.engine.replication import marker_link
from tests.unit.brokers.engine.replication.marker_world import OTHER, OWN, THIRD, World, image, markers, topic


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for task in world.tasks:
        task.cancel()


async def test_each_leader_gets_one_request_for_its_partitions(world: World) -> None:
    world.send(markers("tx", ("a", 0), ("a", 1), ("b", 0), ("b", 1)))

    await world.finished()

    assert sorted(world.said, key=str) == [
        (OWN, 7, {("a", 0)}),
        (OTHER, 7, {("a", 1), ("b", 0)}),
        (THIRD, 7, {("b", 1)}),
    ]
    assert world.done == {"tx": {("a", 0), ("a", 1), ("b", 0), ("b", 1)}}


async def test_a_marker_has_the_producer_and_the_outcome(world: World) -> None:
    seen: list[Any] = []

    async def see(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        seen.extend(request.markers)
        return await World._write(world, broker_id, request)

    world._write = see  # type: ignore[method-assign]
    world.send(markers("tx", ("a", 1), committed=False))

    await world.finished()

    (marker,) = seen
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 5)
    assert marker.transaction_result is False


@pytest.mark.parametrize("code", [3, 6, 7, 19, 20, 56, None], ids=lambda code: f"code {code}")
async def test_temporary_errors_are_retried_with_the_current_leader(world: World, code: int | None) -> None:
    """None: the response does not name the partition."""
    world.codes[("a", 1)] = [code]
    world.held = asyncio.Event()
    world.send(markers("tx", ("a", 1)))
    await world.until(lambda: len(world.said) == 1)
    world.image = image(topic("a", OWN, THIRD))
    world.held.set()

    await world.finished()

    assert world.said == [(OTHER, 7, {("a", 1)}), (THIRD, 7, {("a", 1)})]


async def test_a_partition_of_an_unreadable_topic_gets_its_marker_once_it_is_readable(world: World) -> None:
    """It may exist: taken for deleted, it would never learn how the transaction ended."""
    understood = world.image
    world.image = replace(image(topic("b", OTHER, THIRD)), unreadable_topics=frozenset({"a"}))
    world.send(markers("tx", ("a", 1), ("b", 0), ("c", 0)))
    await world.until(lambda: world.done.get("tx", set()) == {("b", 0), ("c", 0)})
    world.image = understood

    await world.finished()

    assert world.said == [(OTHER, 7, {("b", 0)}), (OTHER, 7, {("a", 1)})]


async def test_only_failed_partitions_are_retried(world: World) -> None:
    world.codes[("b", 0)] = [int(ErrorCode.NOT_ENOUGH_REPLICAS), int(ErrorCode.NOT_ENOUGH_REPLICAS)]
    world.send(markers("tx", ("a", 1), ("b", 0)))

    await world.finished()

    assert world.said == [(OTHER, 7, {("a", 1), ("b", 0)}), (OTHER, 7, {("b", 0)}), (OTHER, 7, {("b", 0)})]


async def test_a_partition_with_a_later_producer_epoch_is_not_retried(world: World) -> None:
    """TXN-12: readers of the other partitions do not wait behind the transaction for ever."""
    world.codes[("a", 1)] = [int(ErrorCode.INVALID_PRODUCER_EPOCH)]
    world.codes[("b", 0)] = [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.send(markers("tx", ("a", 1), ("b", 0)))

    await world.finished()

    assert world.done == {"tx": {("b", 0)}}
    assert sum(("a", 1) in partitions for _, _, partitions in world.said) == 1


async def test_a_transaction_that_every_partition_refuses_is_forgotten(world: World) -> None:
    world.codes[("a", 1)] = [int(ErrorCode.INVALID_PRODUCER_EPOCH)]
    world.send(markers("tx", ("a", 1)))

    await world.finished()

    assert world.done.get("tx", set()) == set()
    assert len(world.said) == 1


async def test_a_partition_with_slow_followers_delays_no_other(world: World) -> None:
    world.codes[("a", 1)] = [int(ErrorCode.REQUEST_TIMED_OUT)]
    world.send(markers("slow", ("a", 1)))
    await world.finished()
    assert world.said_late == [{("a", 1)}]

    world.codes[("a", 1)] = [int(ErrorCode.REQUEST_TIMED_OUT)]
    world.held = asyncio.Event()
    world.send(markers("slow", ("a", 1)))
    await world.until(lambda: len(world.said) == 3)
    world.held.set()
    await world.until(lambda: len(world.said_late) == 2)
    await world.finished()


async def test_a_local_partition_waits_only_for_its_own_transaction(world: World) -> None:
    world.image = image(topic("a", OWN, OWN))
    caught_up = asyncio.Event()
    write = World._write

    async def replicated(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Answers like the handler of WriteTxnMarkers: the response waits for all requested partitions."""
        if any(1 in marked.partition_indexes for marker in request.markers for marked in marker.topics):
            await caught_up.wait()
        return await write(world, broker_id, request)

    world._write = replicated  # type: ignore[method-assign]
    world.send(markers("slow", ("a", 1)))
    world.send(markers("quick", ("a", 0), producer_id=8))

    await world.until(lambda: world.done.get("quick") == {("a", 0)})

    assert "slow" not in world.done
    caught_up.set()
    await world.finished()


async def test_slow_partitions_use_a_separate_connection(world: World) -> None:
    world.codes[("a", 1)] = [int(ErrorCode.REQUEST_TIMED_OUT)]
    world.send(markers("slow", ("a", 1)))
    await world.until(lambda: len(world.said) == 1)
    world.held = asyncio.Event()
    world.send(markers("other", ("b", 0), producer_id=8))

    await world.until(lambda: world.done.get("slow") == {("a", 1)})

    assert "other" not in world.done
    world.held.set()
    await world.finished()


async def test_a_programming_error_leaves_no_marker_unsent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_link, "RETRY_MS_MAX", 20)
    world.mistakes = 1
    world.send(markers("tx", ("a", 1), ("b", 0)))

    await world.finished()

    assert world.done == {"tx": {("a", 1), ("b", 0)}}


async def test_a_fenced_coordinator_stops_sending(world: World) -> None:
    world.codes[("a", 1)] = [int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
    world.codes[("b", 0)] = [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    world.send(markers("tx", ("a", 1), ("b", 0)))

    await world.finished()

    assert len(world.said) == 1
    assert world.done.get("tx", set()) == set()


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_partition_that_cannot_have_markers_is_done(world: World, code: ErrorCode) -> None:
    world.codes[("a", 1)] = [int(code)]
    world.send(markers("tx", ("a", 1)))

    await world.finished()

    assert world.done == {"tx": {("a", 1)}}


@pytest.mark.parametrize(
    "after",
    [image(), image(topic("a", OWN)), image(topic("a", OWN, OTHER, deleting=True))],
    ids=["gone", "fewer partitions", "being deleted"],
)
async def test_a_deleted_partition_is_done(world: World, after: ClusterImage) -> None:
    world.image = after
    world.send(markers("tx", ("a", 1)))

    await world.finished()

    assert world.said == []
    assert world.done == {"tx": {("a", 1)}}


async def test_a_transaction_without_partitions_is_done(world: World) -> None:
    world.send(markers("tx"))
    assert world.done == {}, "no callback is called from inside `send`"

    await world.finished()

    assert world.done == {"tx": set()}


@pytest.mark.parametrize("leader", [-1, 9], ids=["nobody leads", "the leader is dead"])
async def test_a_partition_without_a_leader_delays_only_itself(world: World, leader: int) -> None:
    world.image = image(topic("a", leader, OTHER))
    world.send(markers("tx", ("a", 0), ("a", 1)))
    await world.until(lambda: world.done.get("tx") == {("a", 1)})

    world.image = image(topic("a", THIRD, OTHER))
    await world.finished()

    assert world.said == [(OTHER, 7, {("a", 1)}), (THIRD, 7, {("a", 0)})]


async def test_a_broker_that_does_not_answer_is_retried(world: World) -> None:
    world.unavailable[OTHER] = 3
    world.send(markers("tx", ("a", 1)))

    await world.finished()

    assert len(world.said) == 4
    assert world.done == {"tx": {("a", 1)}}


async def test_markers_that_arrive_during_a_request_are_sent_together(world: World) -> None:
    world.held = asyncio.Event()
    world.send(markers("first", ("a", 1)))
    await world.until(lambda: len(world.said) == 1)
    requests: list[int] = []
    write = World._write

    async def counted(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        requests.append(len(request.markers))
        return await write(world, broker_id, request)

    world._write = counted  # type: ignore[method-assign]
    for number in range(5):
        world.send(markers(f"tx-{number}", ("a", 1), ("b", 0), producer_id=100 + number))
    await asyncio.sleep(0.01)
    world.held.set()

    await world.finished()

    assert requests == [5]


async def test_the_size_of_a_request_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_link, "TRANSACTIONS_PER_REQUEST_MAX", 2)
    monkeypatch.setattr(marker_link, "PARTITIONS_PER_REQUEST_MAX", 3)
    world.held = asyncio.Event()
    world.held.set()
    sizes: list[tuple[int, int]] = []
    write = World._write

    async def measured(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        partitions = sum(len(marked.partition_indexes) for marker in request.markers for marked in marker.topics)
        sizes.append((len(request.markers), partitions))
        return await write(world, broker_id, request)

    world._write = measured  # type: ignore[method-assign]
    world.image = image(topic("a", *[OTHER] * 8))
    for number in range(4):
        world.send(markers(f"tx-{number}", ("a", 0), ("a", 1), producer_id=100 + number))
    world.send(markers("wide", *[("a", index) for index in range(8)], producer_id=200))

    await world.finished()

    assert sizes == [(1, 2)] * 4 + [(1, 8)], "a transaction is not torn apart, but alone when it is large"


async def test_one_producer_appears_once_in_a_request(world: World) -> None:
    """A response distinguishes markers by producer id."""
    world.held = asyncio.Event()
    world.send(markers("first", ("a", 1), producer_id=1))
    await world.until(lambda: len(world.said) == 1)
    world.send(markers("tx", ("a", 1)))
    world.send(markers("same-producer", ("b", 0)))
    await asyncio.sleep(0.01)
    world.held.set()

    await world.finished()

    assert world.done == {"first": {("a", 1)}, "tx": {("a", 1)}, "same-producer": {("b", 0)}}


async def test_new_markers_replace_pending_ones_of_the_same_id(world: World) -> None:
    world.image = image(topic("a", OWN, -1))
    world.send(markers("tx", ("a", 1), committed=True))
    await asyncio.sleep(0.01)
    world.send(markers("tx", ("a", 1), producer_id=8))
    world.image = image(topic("a", OWN, OTHER))

    await world.finished()

    assert world.said == [(OTHER, 8, {("a", 1)})]


async def test_no_marker_is_sent_for_a_transaction_of_another_coordinator(world: World) -> None:
    """The shard moved to another broker while a partition had no leader."""
    world.image = image(topic("a", OWN, -1))
    world.wanted = False
    world.send(markers("tx", ("a", 1)))

    await world.finished()

    assert world.said == []


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_a_suspected_coordinator_keeps_pending_markers(world: World, code: ErrorCode) -> None:
    """A suspended process trusts its shards again without loading them, so no other code would send the markers."""
    world.codes[("a", 1)] = [int(code)]
    world.ignored_answers = 3
    world.send(markers("tx", ("a", 1), ("b", 0)))

    await world.finished()

    assert world.ignored_answers == 0
    assert world.done == {"tx": {("a", 1), ("b", 0)}}
