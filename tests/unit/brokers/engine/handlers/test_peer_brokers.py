"""Calls of brokers about themselves: with certificates only the named broker may send them, in its current epoch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import ProcessIdentity, control
from brokers.contract.process_identity import broker as broker_identity
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.broker_reports import AllotStorageRequest, ReportFlowRequest
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from brokers.engine.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.testkit.fake_store import FakeEnsemble
from tests.testkit.in_process import InProcessBroker
from tests.testkit.records import batch, produce
from tests.testkit.tls import process_context
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.trio import VERSION, follower_fetch, stop_following

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
FUTURE = 1 << 60
COMMAND = control("command")


@dataclass
class Cluster:
    """Two brokers with certificates. Broker 1 gets the requests, and is controller and flow master."""

    one: InProcessBroker
    two: InProcessBroker
    tls: Path

    async def client(self, process: ProcessIdentity) -> WireClient:
        config = self.one.config
        return await self.one.client(config.internal_port, tls=process_context(self.tls, process))

    def broker(self, broker_id: int) -> ProcessIdentity:
        return broker_identity(self.one.config.cluster_id, broker_id)

    @property
    def epoch(self) -> int:
        """Returns the epoch of broker 2's registration."""
        return self.two.broker.session.broker_epoch

    async def report_flow(self, client: WireClient, epoch: int, broker_id: int = 2) -> int:
        master_epoch = self.one.broker.current.image.flow_master_epoch
        request = ReportFlowRequest(
            broker_id=broker_id, broker_epoch=epoch, master_epoch=master_epoch, sequence=1 << 30, lines=[]
        )
        return int((await client.call(ApiKey.REPORT_FLOW, 0, request)).error_code)

    async def allot_storage(self, client: WireClient, epoch: int, broker_id: int = 2) -> int:
        controller_epoch = self.one.broker.current.image.controller_epoch
        request = AllotStorageRequest(
            broker_id=broker_id, broker_epoch=epoch, controller_epoch=controller_epoch, is_complete=True, lines=[]
        )
        return int((await client.call(ApiKey.ALLOT_STORAGE, 1, request)).error_code)

    async def fetch(self, client: WireClient, epoch: int, broker_id: int = 2) -> int:
        request = follower_fetch(bytes(16), replica=broker_id, replica_epoch=epoch, lines=False)
        return int((await client.call(ApiKey.FETCH, VERSION, request)).error_code)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    ensemble, tls = FakeEnsemble(), tmp_path / "tls"
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                InProcessBroker(tmp_path / str(id), broker_id=id, ensemble=ensemble, internal_tls=tls)
            )
            for id in (1, 2)
        ]
        await one.until(lambda: len(one.broker.current.image.brokers) == 2)
        await one.until(lambda: one.broker.flow.is_flow_master and one.broker.current.image.controller_id == 1)
        yield Cluster(one, two, tls)


CALLS = (Cluster.report_flow, Cluster.allot_storage, Cluster.fetch)


@pytest.mark.parametrize("ask", CALLS)
async def test_a_broker_speaks_for_itself_in_its_present_epoch_alone(cluster: Cluster, ask: Any) -> None:
    client = await cluster.client(cluster.broker(2))
    answers = {epoch: await ask(cluster, client, epoch) for epoch in (FUTURE, cluster.epoch + 1, -1)}
    assert answers == dict.fromkeys(answers, STALE)
    assert await ask(cluster, client, cluster.epoch) == NONE


@pytest.mark.parametrize("ask", CALLS)
async def test_no_other_process_speaks_for_a_broker(cluster: Cluster, ask: Any) -> None:
    for process in (COMMAND, cluster.broker(1), cluster.broker(3)):
        client = await cluster.client(process)
        answers = [await ask(cluster, client, epoch) for epoch in (cluster.epoch, FUTURE)]
        assert answers == [REFUSED, REFUSED], process
    stranger = await cluster.client(cluster.broker(3))
    assert await ask(cluster, stranger, FUTURE, 3) == STALE, "no such broker is registered"


async def test_a_report_of_somebody_else_keeps_no_broker_from_its_storage_and_its_share(cluster: Cluster) -> None:
    command = await cluster.client(COMMAND)
    await cluster.allot_storage(command, FUTURE)
    await cluster.report_flow(command, FUTURE)
    broker = cluster.two.broker
    answered, asked_ms = broker.flow.reports_answered, broker.services.clock.monotonic_ms()
    await cluster.two.until(lambda: broker.flow.reports_answered > answered)
    await cluster.two.until(lambda: broker.storage.last_response_ms > asked_ms)


async def test_only_the_replica_is_answered_the_end_of_a_log_that_is_not_committed(cluster: Cluster) -> None:
    """Other peers are answered as consumers, whatever replica they name."""
    follower, command = await cluster.client(cluster.broker(2)), await cluster.client(COMMAND)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = CreatableTopic(
        name="orders", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
    )
    await follower.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    await cluster.two.until(lambda: cluster.two.broker.table.get("orders", 0) is not None)
    stop_following(cluster.two)
    assert (await produce(command, "orders", batch(b"a"), acks=1)).error_code == NONE

    async def end_for(client: WireClient) -> int:
        wanted = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        request = ListOffsetsRequest(replica_id=2, isolation_level=0, topics=[wanted])
        return int((await client.call(ApiKey.LIST_OFFSETS, 7, request)).topics[0].partitions[0].offset)

    assert [await end_for(client) for client in (follower, command)] == [1, 0]


async def test_the_control_plane_aborts_transactions_and_commits_none(cluster: Cluster) -> None:
    async def answer(process: ProcessIdentity, *, committed: bool) -> int:
        topic = WritableTxnMarkerTopic(name="no-such-topic", partition_indexes=[0])
        marker = WritableTxnMarker(
            producer_id=1, producer_epoch=0, transaction_result=committed, topics=[topic], coordinator_epoch=0
        )
        client = await cluster.client(process)
        response = await client.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
        return int(response.markers[0].topics[0].partitions[0].error_code)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await answer(COMMAND, committed=True) == REFUSED
    assert await answer(COMMAND, committed=False) == unknown
    assert await answer(cluster.broker(2), committed=True) == unknown


async def test_only_brokers_ask_about_many_transactions(cluster: Cluster) -> None:
    answers = [
        await (await cluster.client(process)).call(
            ApiKey.ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest(transactions=[])
        )
        for process in (COMMAND, cluster.broker(2))
    ]
    assert [answer.error_code for answer in answers] == [REFUSED, NONE]


async def test_without_certificates_the_epoch_of_the_registration_is_what_counts(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "1") as alone:
        client = await alone.internal_client(CLUSTER_USER)
        controller_epoch = alone.broker.current.image.controller_epoch
        codes = []
        for epoch in (FUTURE, alone.broker.session.broker_epoch):
            request = AllotStorageRequest(
                broker_id=1, broker_epoch=epoch, controller_epoch=controller_epoch, is_complete=True, lines=[]
            )
            codes.append((await client.call(ApiKey.ALLOT_STORAGE, 1, request)).error_code)
        assert codes[0] == STALE
        assert codes[1] in (NONE, ErrorCode.NOT_CONTROLLER)


async def test_the_secret_speaks_for_no_broker_that_has_a_certificate(tmp_path: Path) -> None:
    """The secret is accepted while one broker has no certificate, but only for that broker."""
    ensemble, tls = FakeEnsemble(), tmp_path / "tls"
    async with (
        InProcessBroker(tmp_path / "1", ensemble=ensemble, internal_tls=tls) as one,
        InProcessBroker(tmp_path / "2", broker_id=2, ensemble=ensemble) as two,
    ):
        await one.until(lambda: 2 in one.broker.current.image.brokers)
        client = await one.internal_client(CLUSTER_USER)
        codes = []
        for broker_id, broker in ((1, one), (2, two)):
            request = follower_fetch(
                bytes(16), replica=broker_id, replica_epoch=broker.broker.session.broker_epoch, lines=False
            )
            codes.append((await client.call(ApiKey.FETCH, VERSION, request)).error_code)
        assert codes == [REFUSED, NONE]
