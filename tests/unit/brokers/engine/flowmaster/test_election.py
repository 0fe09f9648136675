"""One broker is flow master at a time, in increasing epochs, and only while its session is connected (CKA-21)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from brokers.contract.documents import BrokerDocument
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import NO_BROKER, ClusterImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.tree import SessionState
from brokers.engine.cluster.watcher import ClusterWatcher
from brokers.engine.flowmaster.election import FlowMasterElection
from tests.testkit.fake_store import FakeEnsemble, FakeTree

TIMEOUT_S = 5.0


@dataclass
class Member:
    id: int
    tree: FakeTree
    current: CurrentImage
    session: ClusterSession
    election: FlowMasterElection

    @property
    def seen(self) -> int:
        return self.current.image.flow_master_id


@asynccontextmanager
async def member(ensemble: FakeEnsemble, id: int) -> AsyncIterator[Member]:
    tree = ensemble.connect()
    store = ClusterStore(tree, assign_replicas=lambda *_args, **_more: [], now_ms=lambda: 0)
    current = CurrentImage(ClusterImage("test"))
    watcher = ClusterWatcher(tree, current)
    document = BrokerDocument(host="127.0.0.1", port=9_000 + id, admin_port=9_100 + id, timestamp_ms=0)
    session = ClusterSession(
        tree=tree, store=store, watcher=watcher, broker_id=id, cluster_id="test", document=document,
        on_fatal=lambda reason: None,
    )  # fmt: skip
    election = FlowMasterElection(
        store=store, watcher=watcher, current=current, broker_id=id, session=lambda: (tree.session_id, session.state)
    )
    await session.start()
    running = asyncio.create_task(election.run())
    try:
        yield Member(id, tree, current, session, election)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await session.stop()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_one_of_several_brokers_is_elected_and_all_know_it() -> None:
    ensemble = FakeEnsemble()
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member(ensemble, id)) for id in (1, 2, 3)]
        await until(lambda: len({candidate.seen for candidate in members}) == 1 and members[0].seen != NO_BROKER)
        masters = [candidate for candidate in members if candidate.election.epoch is not None]
        assert [candidate.id for candidate in masters] == [members[0].seen]
        assert masters[0].election.epoch == members[0].current.image.flow_master_epoch == 1


async def test_after_its_death_another_broker_is_elected_in_the_next_epoch() -> None:
    ensemble = FakeEnsemble()
    async with member(ensemble, 1) as first:
        await until(lambda: first.election.epoch == 1)
        async with member(ensemble, 2) as second:
            await until(lambda: second.seen == 1)
            ensemble.end(first.tree)
            await until(lambda: second.election.epoch == 2)
            assert second.current.image.flow_master_epoch == 2


async def test_a_broker_without_zookeeper_stops_answering_before_its_session_can_expire() -> None:
    ensemble = FakeEnsemble()
    async with member(ensemble, 1) as only:
        await until(lambda: only.election.epoch == 1)
        ensemble.suspend(only.tree)
        await until(lambda: only.session.state is SessionState.SUSPENDED)
        assert only.election.epoch is None
        ensemble.resume(only.tree)
        await until(lambda: only.election.epoch == 1)


async def test_a_new_session_of_the_same_broker_is_a_new_epoch() -> None:
    ensemble = FakeEnsemble()
    async with member(ensemble, 1) as only:
        await until(lambda: only.election.epoch == 1)
        ensemble.expire(only.tree)
        await until(lambda: only.election.epoch == 2)
