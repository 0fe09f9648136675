"""Documents of client quotas in the tree, as brokers read them."""

from __future__ import annotations

import pytest

from brokers.contract import documents
from brokers.engine.cluster import changes, quota_image
from brokers.engine.cluster.quota_image import IpEntity, QuotaEntity
from brokers.engine.cluster.tree import Create, Set
from brokers.engine.cluster.watcher import Part
from quotas.addresses import CONNECTION_CREATION_RATE
from tests.testkit.cluster import Member, run_pending_callbacks
from tests.testkit.fake_store import FakeEnsemble
from tests.unit.brokers.engine.cluster.test_watcher import INSTANCES, publish

LIMITED = "producer_byte_rate"


@pytest.mark.parametrize(
    "body", [b'{"version": 1, "config": {"producer_byte', b"[]", b"\xff", documents.config_to_json({LIMITED: "1e"})]
)
@pytest.mark.parametrize(
    "entity", [QuotaEntity(has_user=True, user="alice", has_client=False, client_id=None), IpEntity("192.0.2.1")]
)
async def test_a_quota_stays_in_force_while_its_document_is_unreadable(
    entity: QuotaEntity | IpEntity, body: bytes
) -> None:
    """QUO-75, also at the start of a session: no limit would let one client take everything."""
    quota = CONNECTION_CREATION_RATE if isinstance(entity, IpEntity) else LIMITED
    body = body.replace(LIMITED.encode(), quota.encode())
    ensemble = FakeEnsemble()
    member = Member(ensemble.connect(), broker_id=1, controls=False)
    await member.start()
    await publish(member, INSTANCES[0])
    await member.until(lambda image: INSTANCES[0] in image.instances)
    path = quota_image.path_of(INSTANCES[0], entity)
    known = documents.config_to_json({quota: "10"})
    await member.tree.commit([Create(f"/config/{path}", known), changes.config_announcement(path)])
    await member.until(lambda image: image.quotas.limits(INSTANCES[0], entity) == {quota: 10.0})
    await member.tree.commit([Set(f"/config/{path}", body, None), changes.config_announcement(path)])
    await run_pending_callbacks()
    assert member.image.quotas.limits(INSTANCES[0], entity) == {quota: 10.0}
    member.watcher.mark(Part.EVERYTHING)
    await run_pending_callbacks()
    assert member.image.quotas.limits(INSTANCES[0], entity) == {quota: 10.0}
    later = documents.config_to_json({quota: "20"})
    await member.tree.commit([Set(f"/config/{path}", later, None), changes.config_announcement(path)])
    await member.until(lambda image: image.quotas.limits(INSTANCES[0], entity) == {quota: 20.0})
    await member.stop()
