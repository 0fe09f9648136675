"""A rule that lets every client administer an open instance, which has no such rule by default."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.rights import acl, create_acls, describe_acls
from tests.testkit.waiting import eventually
from tests.testkit.wire import WireClient

KNOWN_WITHIN_S = 30


def let_everybody_administer(cluster: EngineCluster, instance: TestInstance) -> TestInstance:
    """Creates the rule as the instance's owner, and waits until each broker has it."""
    ports = [broker.settings.internal_port for broker in cluster.brokers]
    # In a thread of its own: a test that calls it may run in a loop already.
    with ThreadPoolExecutor(1) as pool:
        codes = pool.submit(asyncio.run, _create(cluster, instance, ports[0])).result()
        assert codes == [0]
        for port in ports:
            eventually(
                lambda port=port: pool.submit(asyncio.run, _count(cluster, instance, port)).result() == 1,
                within_s=KNOWN_WITHIN_S,
                what=f"the broker at {port} to have the rule",
            )
    return instance


async def _create(cluster: EngineCluster, instance: TestInstance, port: int) -> list[int]:
    owner = await _owner(cluster, instance, port)
    try:
        return await create_acls(owner, acl("User:*", AclOperation.ALL, ResourceType.CLUSTER, CLUSTER_NAME))
    finally:
        await owner.close()


async def _count(cluster: EngineCluster, instance: TestInstance, port: int) -> int:
    owner = await _owner(cluster, instance, port)
    try:
        return len((await describe_acls(owner, resource_type_filter=int(ResourceType.CLUSTER))).resources)
    finally:
        await owner.close()


async def _owner(cluster: EngineCluster, instance: TestInstance, port: int) -> WireClient:
    client = await WireClient.connect(port)
    assert (await client.log_in(instance.id, cluster.secret)).error_code == 0
    return client
