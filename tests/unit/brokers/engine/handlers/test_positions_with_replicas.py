"""OffsetFetch with three replicas of the coordinator's partition: a broker that may no longer be the leader returns no
offsets (GRP-23, decision 76).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.contract.acls import AclOperation, Permission, ResourceType
from brokers.contract.process import CLUSTER_USER
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.coordinators.settings import GROUPS_TOPIC
from brokers.engine.handlers.groups.find_coordinator import GROUP, ensure_state_topic
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.replication.isr_publisher import transfer_leadership
from tests.testkit.rights import acl, acl_filter, client_as, create_acls, delete_acls
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE
from tests.unit.brokers.engine.handlers.offsets_asking import commit, coordinator_ready, fetch, offsets_of
from tests.unit.brokers.engine.handlers.trio import Trio, running_trio

ORDERS = ("orders", 0)
LONG_MS = 60_000
SETTINGS = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "3"}


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    # After the timeout clients get a retriable error.
    async with running_trio(tmp_path, **SETTINGS, offsets_commit_timeout_ms="1500") as running:
        await running.topic()
        yield running


@pytest.fixture
async def patient_trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Replicas that do not fetch stay in sync, and requests wait for them."""
    patience = {"offsets_commit_timeout_ms": str(LONG_MS), "replica_lag_time_max_ms": str(LONG_MS)}
    async with running_trio(tmp_path, **SETTINGS, **patience) as running:
        yield running


async def committed(trio: Trio) -> WireClient:
    """Returns a connection to the coordinator, with a committed offset."""
    first = trio.brokers[1].broker
    ensure_state_topic(first.services, GROUP)
    await trio.until(lambda: GROUPS_TOPIC in first.current.image.topics and trio.leader(GROUPS_TOPIC) > 0)
    client = trio.clients[trio.leader(GROUPS_TOPIC)]
    await coordinator_ready(client)
    assert await commit(client, {ORDERS: 5}) == {ORDERS: 0}
    return client


class ByHand:
    """A follower that fetches when the test says so."""

    def __init__(self, trio: Trio, client: WireClient, replica: int, leader: Partition) -> None:
        self._trio = trio
        self._client = client
        self._replica = replica
        self._leader = leader
        self._session_id = self._session_epoch = 0

    async def fetch(self, max_wait_ms: int = 0) -> Any:
        first = self._session_epoch == 0
        answer = await self._trio.ask(
            self._client,
            self._leader.topic_id,
            self._leader.log_end_offset,
            replica=self._replica,
            leader_epoch=self._leader.leader_epoch,
            last_fetched_epoch=self._leader.last_fetched_epoch,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            lines=first,
            max_wait_ms=max_wait_ms,
        )
        assert answer.error_code == 0, answer
        self._session_id = answer.session_id
        self._session_epoch += 1
        return answer


async def taken_over(trio: Trio) -> list[ByHand]:
    """Returns the followers of the coordinator's partition, controlled by the test from here on."""
    leader = trio.leader(GROUPS_TOPIC)
    followers = []
    for id in trio.followers(GROUPS_TOPIC):
        trio.stop_following(id)
        client = await trio.brokers[leader].internal_client(CLUSTER_USER)
        followers.append(ByHand(trio, client, id, trio.replica(GROUPS_TOPIC, leader)))
    for follower in followers:
        await follower.fetch()
    return followers


async def test_positions_are_returned_while_all_replicas_follow(trio: Trio) -> None:
    client = await committed(trio)

    assert await offsets_of(client, {"orders": [0]}) == {ORDERS: 5}
    assert await offsets_of(client) == {ORDERS: 5}
    leadership_checks = trio.brokers[trio.leader(GROUPS_TOPIC)].broker.services.storage.leadership_checks
    assert leadership_checks.last_number > 1
    assert not leadership_checks.is_waiting


async def test_a_position_waits_for_the_followers_and_they_are_not_kept_waiting(trio: Trio) -> None:
    client = await committed(trio)
    followers = await taken_over(trio)
    services = trio.brokers[trio.leader(GROUPS_TOPIC)].broker.services
    # They have the high watermark, so that nothing but the request ends the wait.
    waiting = [asyncio.create_task(follower.fetch(LONG_MS)) for follower in followers]
    await trio.until(lambda: all(session.epoch == 2 for session in services.storage.followers.values()))

    result = asyncio.create_task(offsets_of(client, {"orders": [0]}))
    for answer in await asyncio.gather(*waiting):
        assert answer.responses == []
    assert not result.done()
    # A fetch that was answered after the request is followed by one that counts, which may wait again.
    again = [asyncio.create_task(follower.fetch(LONG_MS)) for follower in followers]

    assert await result == {ORDERS: 5}
    assert not any(task.done() for task in again)
    for task in again:
        task.cancel()


async def test_a_replica_that_falls_out_of_sync_keeps_nobody_waiting(trio: Trio) -> None:
    """A broker that is not in sync cannot become the leader."""
    client = await committed(trio)
    for id in trio.followers(GROUPS_TOPIC):
        trio.stop_following(id)

    result = await offsets_of(client, {"orders": [0]})

    assert result == {ORDERS: 5}
    assert trio.replica(GROUPS_TOPIC, trio.leader(GROUPS_TOPIC)).isr == (trio.leader(GROUPS_TOPIC),)


async def test_positions_are_returned_while_zookeeper_is_away(trio: Trio) -> None:
    client = await committed(trio)
    for broker in trio.brokers.values():
        broker.ensemble.suspend(broker.tree)

    assert await offsets_of(client, {"orders": [0]}) == {ORDERS: 5}

    for broker in trio.brokers.values():
        broker.ensemble.resume(broker.tree)


async def test_a_coordinator_that_was_deposed_and_has_not_heard_of_it_tells_no_position(trio: Trio) -> None:
    client = await committed(trio)
    old = trio.leader(GROUPS_TOPIC)
    other = trio.brokers[trio.followers(GROUPS_TOPIC)[0]].broker
    deaf = trio.brokers[old]
    deaf.ensemble.suspend(deaf.tree)
    shown = other.current.image.topics[GROUPS_TOPIC].partitions[0]
    document = transfer_leadership(shown, old, other.current.image.brokers)
    assert document is not None
    await other.services.metadata.store.write_isrs([StateWrite(GROUPS_TOPIC, 0, document, shown.version)])
    successor = trio.clients[document.leader]
    await coordinator_ready(successor)
    assert await commit(successor, {ORDERS: 6}) == {ORDERS: 0}

    assert trio.replica(GROUPS_TOPIC, old).is_leader, "by what it knows"
    error, lines = await fetch(client, {"orders": [0]})

    assert (error, lines) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
    assert await offsets_of(successor, {"orders": [0]}) == {ORDERS: 6}
    deaf.ensemble.resume(deaf.tree)
    await trio.until(lambda: not trio.replica(GROUPS_TOPIC, old).is_leader)
    assert (await fetch(client, {"orders": [0]}))[0] == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_right_that_changes_during_the_wait_moves_no_position_to_another_topic(
    patient_trio: Trio, is_lost: bool
) -> None:
    trio = patient_trio
    first = trio.brokers[1]
    port = await first.create_instance(MINE)
    ensure_state_topic(first.broker.services, GROUP)
    await trio.until(lambda: GROUPS_TOPIC in first.broker.current.image.topics and trio.leader(GROUPS_TOPIC) > 0)
    leading = trio.brokers[trio.leader(GROUPS_TOPIC)]
    administrator = await first.client(port)
    for name in ("orders", "parcels"):
        await first.create_topic(administrator, name)
    topics = leading.broker.current
    await trio.until(lambda: {f"{MINE}.orders", f"{MINE}.parcels"} <= topics.image.topics.keys())
    owner, alice = await leading.internal_client(MINE), await client_as(leading, MINE, "alice")
    await coordinator_ready(alice)
    assert await commit(alice, {ORDERS: 5, ("parcels", 0): 9}) == {ORDERS: 0, ("parcels", 0): 0}
    right = acl("User:alice", AclOperation.ALL, ResourceType.TOPIC, "orders", permission=Permission.DENY)
    everybody = acl("User:*", AclOperation.ALL, ResourceType.TOPIC, "*")
    assert await create_acls(owner, *([everybody] if is_lost else [everybody, right])) == [0] * (2 - is_lost)
    followers = await taken_over(trio)

    result = asyncio.create_task(fetch(alice, {"orders": [0], "parcels": [0]}))
    await trio.until(lambda: leading.broker.services.storage.leadership_checks.is_waiting)
    if is_lost:
        assert await create_acls(owner, right) == [0]
    else:
        await delete_acls(owner, acl_filter(permission_type=int(Permission.DENY)))
    assert not result.done()
    # The second one was surely sent after the request.
    for follower in followers * 2:
        await follower.fetch()

    error, lines = await result
    assert error == 0
    orders, parcels = lines[ORDERS], lines["parcels", 0]
    assert (error, orders.error_code, orders.committed_offset) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    assert (parcels.error_code, parcels.committed_offset) == (0, 9)
