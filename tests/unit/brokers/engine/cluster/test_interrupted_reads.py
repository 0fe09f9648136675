"""Reads of the change log that requests begin, and that are cancelled or fail: no announced change is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from brokers.contract import documents, paths
from brokers.contract.documents import InstanceDocument
from brokers.engine.cluster import errors, loader
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.tree import Create, Delete, Set, Tree
from brokers.engine.cluster.watcher import ClusterWatcher
from tests.testkit.cluster import CLUSTER_ID, Member, instance_document, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble

INSTANCE, OTHER = "ins-aaaaaaaa", "ins-bbbbbbbb"
# A read of one change takes fewer turns of the event loop.
CANCELLED_AFTER_TURNS_MAX = 40
SEEN_WITHIN_S = 5.0


async def change(tree: Tree, instance_id: str, limit_bps: int) -> str:
    """Changes a limit of an instance; returns the path of the node that announces it."""
    document = instance_document([1], produce_bps=limit_bps).to_json()
    announced = documents.change_to_json([f"instances/{instance_id}"])
    path = paths.instance(instance_id)
    return (await tree.commit([Set(path, document, None), Create(paths.CHANGE_PREFIX, announced, sequence=True)]))[-1]


@pytest.mark.parametrize("has_gap", [False, True])
async def test_changes_are_not_lost_when_the_request_that_reads_them_is_cancelled_at_any_moment(has_gap: bool) -> None:
    """A client that disconnects cancels the read of its request; the changes may be of any instance."""
    ensemble = FakeEnsemble()
    writer, reader = Member(ensemble.connect(), broker_id=1), Member(ensemble.connect(), broker_id=2, controls=False)
    await writer.start()
    await reader.start()
    await writer.until_complete()
    for instance_id in (INSTANCE, OTHER):
        await writer.publish_instance(instance_id, [1])
    for turns in range(CANCELLED_AFTER_TURNS_MAX):
        await run_pending_callbacks()
        limit_bps = 1_000 + turns
        announced = await change(writer.tree, INSTANCE, limit_bps)
        if has_gap:
            await writer.tree.commit([Delete(announced, None)])
            await change(writer.tree, OTHER, limit_bps)
        reading = asyncio.create_task(reader.watcher.catch_up())
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        await reader.until(lambda image, limit=limit_bps: limit_of(image) == limit, SEEN_WITHIN_S)

    for member in (writer, reader):
        await member.stop()


async def test_a_request_that_shares_a_read_that_fails_reads_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    await member.publish_instance(INSTANCE, [1])
    current, tree = CurrentImage(ClusterImage(CLUSTER_ID)), ensemble.connect()
    reader = ClusterWatcher(tree, current)
    await reader.load()
    await change(member.tree, INSTANCE, 7)
    read_instances = loader.read_instances
    failures = ["the connection was lost"]

    async def fails_once(store: Tree, ids: Sequence[str]) -> dict[str, InstanceDocument | None]:
        if store is tree and failures:
            raise errors.StoreUnavailable(failures.pop())
        return await read_instances(store, ids)

    monkeypatch.setattr(loader, "read_instances", fails_once)

    results = await asyncio.gather(*(reader.catch_up() for _ in range(3)), return_exceptions=True)

    assert [type(result) for result in results] == [errors.StoreUnavailable, type(None), type(None)]
    assert limit_of(current.image) == 7
    await member.stop()


def limit_of(image: ClusterImage) -> int:
    return image.instances[INSTANCE].document.produce_bps
