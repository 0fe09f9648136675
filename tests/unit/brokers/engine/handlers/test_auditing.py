"""Audit events of the administrative calls on a tenant's port, written before the response."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from brokers.contract.acls import AclOperation, PatternType, Permission, ResourceType
from brokers.contract.audit import AUDIT_TOPIC, DENIED, DONE, EVENT_BYTES_MAX, ITEMS_MAX, UNKNOWN, AuditEvent, AuditItem
from brokers.engine.access.principals import ANONYMOUS
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.audit_trail import Append
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from brokers.engine.protocol.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)
from brokers.engine.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.testkit.records import batch, produce
from tests.testkit.rights import client_as
from tests.testkit.scram import salted_password
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import alter, create, metadata_of, set_quota, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House

pytestmark = pytest.mark.usefixtures("administered")

SALT = b"0123456789abcdef"


class Recorder:
    """Records events, and returns those since the last call."""

    def __init__(self, house: House) -> None:
        self.trail = house.broker.broker.services.access.audit
        self.log: Append = self.trail.append
        self.raw: list[bytes] = []
        self.trail.append = self._append

    def _append(self, instance_id: str, value: bytes) -> bool:
        self.raw.append(value)
        return self.log(instance_id, value)

    def events(self) -> list[AuditEvent]:
        events = [AuditEvent.from_json(raw) for raw in self.raw]
        self.raw.clear()
        return events

    def items(self) -> list[AuditItem]:
        return [item for event in self.events() for item in event.items]


@pytest.fixture
def recorder(house: House) -> Recorder:
    return Recorder(house)


# -- topics -----------------------------------------------------------------------------------------------------------


async def test_a_created_topic_is_audited_with_user_and_address(house: House, recorder: Recorder) -> None:
    await house.topic("orders", 3, retention_ms="1000")
    (event,) = recorder.events()
    assert (event.instance_id, event.user, event.address) == (MINE, ANONYMOUS, "127.0.0.1")
    assert (event.client_id, event.route, event.broker_id) == ("test", "default", 1)
    assert event.items == (
        AuditItem(
            action="topic.created",
            kind="topic",
            name="orders",
            after={"partitions": 3, "replication_factor": 1, "config": {"retention.ms": "1000"}},
        ),
    )


async def test_a_validated_or_refused_creation_is_not_audited(house: House, recorder: Recorder) -> None:
    await create(house.mine, wanted_topic("orders"), validate_only=True)
    await create(house.mine, wanted_topic("not/a/name"))
    assert not recorder.events()


async def test_the_rest_of_a_partly_refused_request_is_audited(house: House, recorder: Recorder) -> None:
    await create(house.mine, wanted_topic("orders"), wanted_topic("not/a/name"))
    (event,) = recorder.events()
    assert ([item.name for item in event.items], event.failed, event.more) == (["orders"], 1, 0)


@pytest.mark.parametrize("is_by_id", [False, True])
async def test_a_deleted_topic_is_audited_with_its_former_state(
    house: House, recorder: Recorder, is_by_id: bool
) -> None:
    topic_id = await house.topic("orders", 2)
    recorder.raw.clear()
    named, by_id = (None, topic_id) if is_by_id else ("orders", UUID_ZERO)
    state = DeleteTopicState(name=named, topic_id=by_id)
    await house.mine.call(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[state], timeout_ms=5_000))
    (item,) = recorder.items()
    assert (item.action, item.name, item.after) == ("topic.deleted", "orders", None)
    assert item.before == {"partitions": 2, "replication_factor": 1, "config": {}}


async def test_partition_counts_are_audited_before_and_after(house: House, recorder: Recorder) -> None:
    await house.topic("orders", 2)
    recorder.raw.clear()
    wanted = CreatePartitionsTopic(name="orders", count=5, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=False)
    await house.mine.call(ApiKey.CREATE_PARTITIONS, 3, request)
    (item,) = recorder.items()
    assert (item.action, item.before, item.after) == ("topic.changed", {"partitions": 2}, {"partitions": 5})


async def test_configurations_are_audited_as_differences(house: House, recorder: Recorder) -> None:
    await house.topic("orders", retention_ms="1000", segment_bytes="1048576")
    recorder.raw.clear()
    assert await alter(house, ("retention.ms", 0, "2000"), ("max.message.bytes", 0, "5000")) == 0
    (item,) = recorder.items()
    assert item.action == "topic.changed"
    assert item.before == {"config": {"retention.ms": "1000"}}
    assert item.after == {"config": {"retention.ms": "2000", "max.message.bytes": "5000"}}
    assert await alter(house, ("retention.ms", 0, "2000")) == 0
    assert not recorder.items(), "nothing was changed"


async def test_the_older_call_tells_what_it_took_away(house: House, recorder: Recorder) -> None:
    await house.topic("orders", retention_ms="1000", segment_bytes="1048576")
    recorder.raw.clear()
    configs = [AlterableConfig(name="retention.ms", value="3000")]
    resource = AlterConfigsResource(resource_type=2, resource_name="orders", configs=configs)
    await house.mine.call(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[resource], validate_only=False))
    (item,) = recorder.items()
    assert item.before == {"config": {"retention.ms": "1000", "segment.bytes": "1048576"}}
    assert item.after == {"config": {"retention.ms": "3000"}}


async def test_deleted_records_are_audited_with_the_new_first_offsets(house: House, recorder: Recorder) -> None:
    await house.topic("orders")
    await produce(house.mine, "orders", batch(b"a"))
    await produce(house.mine, "orders", batch(b"b"))
    recorder.raw.clear()
    partitions = [DeleteRecordsPartition(partition_index=index, offset=1) for index in (0, 7)]
    topic = DeleteRecordsTopic(name="orders", partitions=partitions)
    await house.mine.call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic], timeout_ms=1_000))
    (item,) = recorder.items()
    assert (item.action, item.name) == ("topic.records_deleted", "orders")
    assert item.after == {"partitions": 2, "first_offsets": {"0": 1}}


async def test_an_automatically_created_topic_is_audited(house: House, recorder: Recorder) -> None:
    await metadata_of(house.mine, "orders", auto_create=True)
    await house.broker.until(lambda: recorder.raw)
    (item,) = recorder.items()
    assert (item.action, item.name) == ("topic.created", "orders")
    assert item.after == {"partitions": 3, "replication_factor": 1, "automatically": True}


# -- groups -----------------------------------------------------------------------------------------------------------


def commit(group: str, offset: int, **more: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="secret?")
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])], **more
    )


async def committed(house: House, request: OffsetCommitRequest) -> int:
    not_yet = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    answer = await house.mine.call(ApiKey.OFFSET_COMMIT, 8, request)
    while answer.topics[0].partitions[0].error_code in not_yet:
        await house.mine.call(ApiKey.FIND_COORDINATOR, 0, _find(request.group_id))
        answer = await house.mine.call(ApiKey.OFFSET_COMMIT, 8, request)
    return int(answer.topics[0].partitions[0].error_code)


def _find(group: str) -> Any:
    from brokers.engine.protocol.messages.groups import FindCoordinatorRequest

    return FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[])


async def test_offsets_set_from_outside_the_group_are_audited_and_a_members_are_not(
    house: House, recorder: Recorder
) -> None:
    await house.topic("orders")
    recorder.raw.clear()
    assert await committed(house, commit("etl", 42)) == 0
    (item,) = recorder.items()
    assert (item.action, item.kind, item.name) == ("group.offsets_committed", "group", "etl")
    assert item.after == {"partitions": 1, "offsets": {"orders-0": 42}}
    await committed(house, commit("etl", 43, generation_id_or_member_epoch=3, member_id="somebody"))
    assert not recorder.events()


async def test_deleted_offsets_and_groups_are_audited(house: House, recorder: Recorder) -> None:
    await house.topic("orders")
    await committed(house, commit("etl", 42))
    recorder.raw.clear()
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=[partition])
    await house.mine.call(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id="etl", topics=[topic]))
    await committed(house, commit("etl", 42))
    await house.mine.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["etl", "none"]))
    actions = [(item.action, item.name) for item in recorder.items()]
    assert ("group.offsets_deleted", "etl") in actions
    assert ("group.deleted", "etl") in actions
    assert ("group.deleted", "none") not in actions


# -- who may ----------------------------------------------------------------------------------------------------------


async def test_users_are_audited_without_anything_of_their_passwords(house: House, recorder: Recorder) -> None:
    async def scram(upserted: Sequence[int] = (), deleted: Sequence[int] = ()) -> None:
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="alice", mechanism=each) for each in deleted],
            upsertions=[
                ScramCredentialUpsertion(
                    name="alice", mechanism=each, iterations=4_096, salt=SALT,
                    salted_password=salted_password("pw", SALT, 4_096, each),
                )
                for each in upserted
            ],
        )  # fmt: skip
        answer = await house.mine.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        assert [result.error_code for result in answer.results] == [0]

    await scram([1, 2])
    await scram([2])
    await scram(deleted=[1, 2])
    raw = b"".join(recorder.raw)
    assert SALT not in raw and salted_password("pw", SALT, 4_096, 1).hex().encode() not in raw
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [(item.action, item.name, item.before, item.after) for item in recorder.items()] == [
        ("user.created", "alice", None, {"mechanisms": both, "set": both}),
        ("user.credentials_changed", "alice", {"mechanisms": both}, {"mechanisms": both, "set": ["SCRAM-SHA-512"]}),
        ("user.deleted", "alice", {"mechanisms": both}, None),
    ]


def rule(principal: str = "User:alice", name: str = "orders") -> AclCreation:
    return AclCreation(
        resource_type=int(ResourceType.TOPIC),
        resource_name=name,
        resource_pattern_type=int(PatternType.LITERAL),
        principal=principal,
        host="*",
        operation=int(AclOperation.READ),
        permission_type=int(Permission.ALLOW),
    )


EVERYTHING = DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def test_access_rules_are_audited_one_by_one(house: House, recorder: Recorder) -> None:
    await house.mine.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[rule(), rule("User:bob")]))
    await house.mine.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[rule()]))
    of_bob = replace(EVERYTHING, principal_filter="User:bob")
    await house.mine.call(ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[of_bob]))
    items = recorder.items()
    assert [(item.action, item.name) for item in items] == [
        ("acl.created", "topic/orders"),
        ("acl.created", "topic/orders"),
        ("acl.deleted", "topic/orders"),
    ]
    assert items[2].before == {
        "resource_type": "topic", "resource_name": "orders", "pattern_type": "literal", "principal": "User:bob",
        "host": "*", "operation": "read", "permission": "allow",
    }  # fmt: skip


async def test_quotas_are_audited_before_and_after(house: House, recorder: Recorder) -> None:
    for value in (1_000.0, 2_000.0, None):
        parts: dict[str, str | None] = {"user": None, "client-id": "etl"}
        assert await set_quota(house.mine, parts, "producer_byte_rate", value) == 0
    assert await set_quota(house.mine, {"ip": "192.0.2.1"}, "connection_creation_rate", 5.0) == 0
    assert [(item.action, item.name, item.before, item.after) for item in recorder.items()] == [
        ("quota.set", "users/<default>/clients/etl", None, {"producer_byte_rate": 1_000.0}),
        ("quota.set", "users/<default>/clients/etl", {"producer_byte_rate": 1_000.0}, {"producer_byte_rate": 2_000.0}),
        ("quota.removed", "users/<default>/clients/etl", {"producer_byte_rate": 2_000.0}, None),
        ("quota.set", "ips/192.0.2.1", None, {"connection_creation_rate": 5.0}),
    ]


# -- what is not done, or not known -----------------------------------------------------------------------------------


async def test_denied_changes_are_counted(house: House, recorder: Recorder) -> None:
    await house.topic("orders")
    await house.mine.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[rule("User:somebody")]))
    recorder.raw.clear()
    for _ in range(2):
        state = DeleteTopicState(name="orders", topic_id=UUID_ZERO)
        answer = await house.mine.call(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[state], timeout_ms=1_000))
        assert answer.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    recorder.trail.finish()
    (event,) = recorder.events()
    assert event.requests == 2
    assert event.items[0].action == DENIED
    assert event.items[0].after == {"names": ["orders"], "asked": "topic.deleted"}


async def test_a_refused_filter_of_rules_is_counted_without_a_name(house: House, recorder: Recorder) -> None:
    alice = await client_as(house.broker, MINE, "alice")
    on_cluster = AclCreation(
        resource_type=int(ResourceType.CLUSTER),
        resource_name="kafka-cluster",
        resource_pattern_type=int(PatternType.LITERAL),
        principal="User:alice",
        host="*",
        operation=int(AclOperation.ALTER),
        permission_type=int(Permission.DENY),
    )
    await house.mine.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[on_cluster]))
    recorder.raw.clear()
    await alice.call(ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[EVERYTHING]))
    recorder.trail.finish()
    (event,) = recorder.events()
    assert (event.user, [item.after for item in event.items]) == ("alice", [{"asked": "acl.deleted"}])


async def test_a_change_whose_client_hangs_up_is_audited_with_an_unknown_outcome(
    house: House, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.topic("orders")
    recorder.raw.clear()
    store, begun = house.broker.broker.store, asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "delete_topic", never)
    client = await house.broker.client(house.my_port)
    state = DeleteTopicState(name="orders", topic_id=UUID_ZERO)
    await client.send(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[state], timeout_ms=5_000))
    await begun.wait()
    await client.close()
    await house.broker.until(lambda: recorder.raw)
    (item,) = recorder.items()
    assert (item.action, item.name, item.outcome) == ("topic.deleted", "orders", UNKNOWN)


async def test_an_invalid_entry_hides_no_quota_of_a_request_whose_client_hangs_up(
    house: House, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun = house.broker.broker.store, asyncio.Event()

    async def never(*_: Any, **__: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "alter_client_quotas", never)
    operation = QuotaOperation(key="producer_byte_rate", value=1_000.0, remove=False)
    entries = [
        QuotaAlteration(entity=[QuotaEntity(entity_type=kind, entity_name="etl")] if kind else [], ops=[operation])
        for kind in ("client-id", "", "planet")
    ]
    client = await house.broker.client(house.my_port)
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    await client.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    await begun.wait()
    await client.close()
    await house.broker.until(lambda: recorder.raw)
    (item,) = recorder.items()
    assert (item.action, item.name, item.outcome) == ("quota.set", "clients/etl", UNKNOWN)


async def test_changes_by_the_control_plane_inside_the_cluster_are_not_audited(
    house: House, recorder: Recorder
) -> None:
    inside = await house.broker.internal_client(MINE)
    await create(inside, wanted_topic("orders"))
    assert not recorder.events()


async def test_a_mistake_in_telling_takes_no_answer_back(
    house: House, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder.trail, "report_changes", lambda *_, **__: 1 / 0)
    (answer,) = await create(house.mine, wanted_topic("orders"))
    assert answer.error_code == 0


# -- bounds -----------------------------------------------------------------------------------------------------------


async def test_ten_thousand_rules_are_one_bounded_event(house: House, recorder: Recorder) -> None:
    count = 3_000
    rules = [rule(name=f"topic-{number}") for number in range(count)]
    answer = await house.mine.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=rules))
    done = sum(1 for result in answer.results if not result.error_code)
    assert done == 1_000 or done > ITEMS_MAX
    (raw,) = recorder.raw
    assert len(raw) <= 2 * EVENT_BYTES_MAX
    (event,) = recorder.events()
    assert 0 < len(event.items) <= ITEMS_MAX
    assert len(event.items) + event.more + event.failed == count


async def test_events_are_records_of_the_audit_topic_and_paid_for(house: House, recorder: Recorder) -> None:
    accounting = house.broker.broker.accountings.get_or_create(MINE)
    charged: list[int] = []
    real = accounting.shares.charge_state

    class Shares:
        def charge_state(self, size_bytes: int, now_ms: int) -> None:
            charged.append(size_bytes)
            real(size_bytes, now_ms)

        def __getattr__(self, name: str) -> Any:
            return getattr(accounting_shares, name)

    accounting_shares = accounting.shares
    accounting.shares = Shares()  # type: ignore[assignment]
    await house.topic("orders")
    await house.broker.until(lambda: recorder.trail.waiting == 0 and recorder.trail.counts.written >= 1)
    (partition,) = [each for each in house.broker.broker.table if each.topic == AUDIT_TOPIC]
    assert partition.high_watermark == recorder.trail.counts.written
    assert charged and charged[0] > 100


async def test_a_tenant_cannot_name_the_audit_topic(house: House) -> None:
    for client in (house.mine, house.theirs):
        (topic,) = (await metadata_of(client, AUDIT_TOPIC)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert AUDIT_TOPIC not in [topic.name for topic in (await metadata_of(client)).topics]


async def test_another_instances_changes_are_its_own(house: House, recorder: Recorder) -> None:
    await create(house.theirs, wanted_topic("orders"))
    assert [event.instance_id for event in recorder.events()] == [THEIRS]


def test_every_call_that_changes_something_for_a_tenant_is_audited() -> None:
    """A new call has to be classified."""
    changing = {
        ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DELETE_RECORDS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_GROUPS, ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    }  # fmt: skip
    by_name = {api_key for api_key in ADVERTISED_TENANT if api_key.name.startswith(("CREATE", "DELETE", "ALTER"))}
    assert by_name <= changing
    assert {api.key for api in API_TABLE.values() if api.audit is not None} == changing
    assert DONE == 0


async def test_an_authenticated_client_is_audited_by_its_name(house: House, recorder: Recorder) -> None:
    client: WireClient = await client_as(house.broker, MINE, "alice")
    await create(client, wanted_topic("orders"))
    assert {event.user for event in recorder.events() if event.items[0].action == "topic.created"} == {"alice"}
