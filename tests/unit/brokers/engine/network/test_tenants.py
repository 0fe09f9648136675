"""A broker reads from the documents which instances belong to one tenant."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.network.fair_turns import TURN_S, InstanceTurns
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.in_process import InProcessBroker

FIRST, SECOND, ALONE = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-cccccccc"
TENANT = "ten-11111111"


def turns_of(broker: InProcessBroker, instance_id: str) -> InstanceTurns:
    listener = broker.broker.listeners.get(instance_id)
    assert listener is not None
    return listener.turns


async def test_instances_of_one_tenant_share_what_it_uses_of_the_loop(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "one") as broker:
        port = await broker.create_instance(FIRST, tenant_id=TENANT)
        await broker.create_instance(SECOND, tenant_id=TENANT)
        await broker.create_instance(ALONE)
        first, second, alone = (turns_of(broker, instance_id) for instance_id in (FIRST, SECOND, ALONE))
        first.used(0.0, TURN_S)
        assert second.is_spent and not alone.is_spent
        assert alone.tenant.key == ALONE, "an instance whose document names no tenant is its own"
        assert broker.broker.engine._tenant_of(SECOND) == TENANT
        assert broker.broker.engine._tenant_of(ALONE) == ALONE

        client = await broker.client(port)
        assert (await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))).topics == []


async def test_an_instance_whose_document_gets_a_tenant_keeps_its_connections(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "one") as broker:
        await broker.create_instance(FIRST, tenant_id=TENANT)
        client = await broker.client(await broker.create_instance(SECOND))
        before = turns_of(broker, SECOND)
        await broker.update_instance(SECOND, tenant_id=TENANT)
        await broker.until(lambda: before.tenant is turns_of(broker, FIRST).tenant)
        assert turns_of(broker, SECOND) is before
        assert before.tenant.instance_count == 2
        assert (await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))).topics == []

        broker.broker.listeners.close(SECOND)
        assert before.tenant.instance_count == 1
