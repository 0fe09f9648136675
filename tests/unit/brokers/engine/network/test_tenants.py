"""A broker reads the tenant of each instance from its document."""

from __future__ import annotations

from pathlib import Path

from brokers.contract.loop_weights import TENANT_WEIGHT_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.scheduling.fair_turns import TURN_S, InstanceTurns
from brokers.engine.scheduling.weights import INSTANCE_WEIGHT_MAX, INSTANCE_WEIGHT_MIN, weight_of
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import PRODUCE_VERSION, batch, fetch_request, produce_request

FIRST, SECOND, ALONE = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-cccccccc"
TENANT = "ten-11111111"
MB = 1_000_000


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
        now_s = first.clock_s()
        first.charge(now_s, now_s + 2 * TURN_S)
        assert second.may_have_to_queue and not alone.may_have_to_queue
        assert alone.tenant.key == ALONE, "an instance whose document names no tenant is its own"
        assert broker.broker.services.metadata.current.tenant_of(SECOND) == TENANT
        assert broker.broker.services.metadata.current.tenant_of(ALONE) == ALONE

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


async def test_requests_of_every_kind_are_charged_to_the_line_of_their_instance(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "one") as broker:
        client = await broker.client(await broker.create_instance(FIRST))
        await broker.create_instance(SECOND)
        line = turns_of(broker, FIRST).loop_queue
        refused = produce_request("unknown", batch(b"x"))
        unknown_session = fetch_request("unknown", session_id=7, session_epoch=7)
        polled = fetch_request("unknown", max_wait_ms=1, min_bytes=1)
        charged_s = line.used_s
        assert charged_s > 0, "the connection was accepted"
        assert not turns_of(broker, SECOND).loop_queue.used_s

        async def charged_more() -> bool:
            nonlocal charged_s
            before_s, charged_s = charged_s, line.used_s
            return charged_s > before_s

        answer = await client.call(ApiKey.FETCH, 12, unknown_session)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert await charged_more()
        await client.call(ApiKey.FETCH, 12, polled)
        assert await charged_more()
        await client.call(ApiKey.PRODUCE, PRODUCE_VERSION, refused)
        assert await charged_more()
        await client.call(ApiKey.FETCH, 3, polled)  # served by a task, like all fetches before version 4
        assert await charged_more()
        assert not turns_of(broker, SECOND).loop_queue.used_s
        assert broker.broker.listeners.loop_used_ms(FIRST) == round(charged_s * 1_000)


async def test_the_weight_of_an_instance_and_its_tenant_follow_the_documents(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "one") as broker:
        await broker.create_instance(FIRST, tenant_id=TENANT, produce_bps=MB, consume_bps=MB)
        line = turns_of(broker, FIRST).loop_queue
        assert line.weight == line.tenant.weight == INSTANCE_WEIGHT_MIN
        for number in range(3):
            await broker.create_instance(f"ins-dddddd{number:02}", tenant_id=TENANT, produce_bps=1_000 * MB)
        assert line.tenant.weight == TENANT_WEIGHT_MAX
        await broker.update_instance(FIRST, produce_bps=20 * MB)
        await broker.until(lambda: line.weight == weight_of(20 * MB, MB))
        weights = broker.broker.services.accounting.weights_of
        assert weights(FIRST, TENANT) == (line.weight, TENANT_WEIGHT_MAX)
        assert weights("ins-eeeeeeee", "ten-eeeeeeee") == (INSTANCE_WEIGHT_MAX, INSTANCE_WEIGHT_MAX)
