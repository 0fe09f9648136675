"""Topic administration, client quotas and registrations through the store: refusals, writes and races."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from brokers.contract import documents, paths
from brokers.contract.documents import InstanceAck
from brokers.engine.cluster import errors, topic_plans
from brokers.engine.cluster.image import BrokerInfo, ClusterImage
from brokers.engine.cluster.quota_image import QuotaEntity
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Create, Operation, Set
from brokers.engine.controller.placement import Placer
from instances import naming
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

OURS, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"


@pytest.fixture
async def ensemble() -> FakeEnsemble:
    return FakeEnsemble()


@pytest.fixture
async def member(ensemble: FakeEnsemble) -> AsyncIterator[Member]:
    """Broker 1 of three; brokers 1 and 2 host our instance, 3 does not."""
    members = [Member(ensemble.connect(), broker_id=id, controls=id == 1) for id in (1, 2, 3)]
    for broker in members:
        await broker.start()
    await members[0].until(lambda image: len(image.brokers) == 3)
    await members[0].publish_instance(OURS, [1, 2])
    await members[0].publish_instance(THEIRS, [1, 2, 3])
    yield members[0]
    for broker in members:
        await broker.stop()


async def create(member: Member, name: str, instance_id: str = OURS, **wanted: object) -> object:
    return await member.create_topic(instance_id, name, **wanted)


async def test_partitions_go_only_to_live_brokers_that_host_the_instance(member: Member) -> None:
    topic = await member.create_topic(OURS, "orders", partitions=8)
    assert {partition.leader for partition in topic.partitions} == {1, 2}
    assert topic.instance_id == OURS and topic.user_name == "orders" and len(topic.topic_id) == 16


async def test_unset_counts_are_the_instances_defaults(member: Member) -> None:
    topic = await member.create_topic(OURS, "orders")
    assert len(topic.partitions) == 3 and len(topic.partitions[0].replicas) == 2


@pytest.mark.parametrize(
    ("name", "wanted", "refusal"),
    [
        ("", {}, errors.InvalidTopicName),
        ("..", {}, errors.InvalidTopicName),
        ("a/b", {}, errors.InvalidTopicName),
        ("a" * 250, {}, errors.InvalidTopicName),
        ("taken", {}, errors.TopicExists),
        ("a_b", {}, errors.InvalidTopicName),
        ("x", {"partitions": 0}, errors.InvalidPartitions),
        ("x", {"partitions": -2}, errors.InvalidPartitions),
        ("x", {"partitions": 1_001}, errors.InvalidPartitions),
        ("x", {"replication_factor": 0}, errors.InvalidReplicationFactor),
        ("x", {"replication_factor": 3}, errors.InvalidReplicationFactor),
        ("x", {"replication_factor": 4}, errors.InvalidReplicationFactor),
        ("x", {"assignment": {}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {1: [1]}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: []}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: [1, 1]}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: [1], 1: [1, 2]}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: [3]}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: [77]}}, errors.InvalidReplicaAssignment),
        ("x", {"assignment": {0: [1]}, "partitions": 1}, errors.Refused),
    ],
)
async def test_an_invalid_creation_is_refused_and_changes_nothing(
    member: Member, ensemble: FakeEnsemble, name: str, wanted: dict[str, object], refusal: type[errors.Refused]
) -> None:
    """CTL-18, CTL-19, with user-visible names only in the message (CKA-17)."""
    await create(member, "taken")
    await create(member, "a.b")
    before = ensemble.transactions
    with pytest.raises(refusal) as refused:
        await member.store.create_topic(member.image, TopicSpec(OURS, name, **wanted))  # type: ignore[arg-type]
    assert type(refused.value) is refusal
    assert "ins-" not in str(refused.value)
    assert ensemble.transactions == before


async def test_replicas_are_spread_over_the_brokers_of_the_instance(member: Member) -> None:
    """REP-1: the requested number of replicas, on different live brokers."""
    topic = await member.create_topic(OURS, "orders", partitions=4, replication_factor=2)
    assert all(sorted(partition.replicas) == [1, 2] for partition in topic.partitions)
    assert {partition.replicas[0] for partition in topic.partitions} == {1, 2}


async def test_a_broker_that_the_instance_leaves_gets_no_new_replica(member: Member) -> None:
    """It still serves its replicas, so its port stays in the document."""
    await member.publish_instance(OURS, [1, 2], leaving=(2,), generation=2)
    await member.until(lambda image: image.instances[OURS].document.leaving == (2,))
    topic = await member.create_topic(OURS, "orders", partitions=4)
    assert {partition.replicas for partition in topic.partitions} == {(1,)}
    with pytest.raises(errors.InvalidReplicationFactor):
        await create(member, "wide", replication_factor=2)


def test_no_more_than_three_replicas_are_allowed() -> None:
    brokers = {id: BrokerInfo(id, "127.0.0.1", 1, 1, None, 1) for id in range(1, 6)}
    with pytest.raises(errors.InvalidReplicationFactor, match="at most 3"):
        topic_plans.plan_creation(
            ClusterImage("cl-test", brokers=brokers),
            TopicSpec(None, "x", partitions=1, replication_factor=4),
            assign_replicas=Placer(lambda below: 0),
            topic_id=bytes(16),
            replication_factor_max=topic_plans.REPLICATION_FACTOR_MAX,
        )


async def test_names_collide_only_within_an_instance(member: Member) -> None:
    await create(member, "a.b")
    await create(member, "a_b", THEIRS)
    with pytest.raises(errors.InvalidTopicName):
        await create(member, "a_b")


async def test_a_dry_run_writes_nothing_and_shows_the_plan(member: Member, ensemble: FakeEnsemble) -> None:
    before = ensemble.transactions
    plan = await member.store.create_topic(member.image, TopicSpec(OURS, "orders", partitions=4), validate_only=True)
    assert len(plan.assignment) == 4 and plan.replication_factor == 2
    assert ensemble.transactions == before


async def test_one_of_two_concurrent_creations_succeeds(member: Member) -> None:
    image = member.image
    outcomes = await asyncio.gather(
        *(member.store.create_topic(image, TopicSpec(OURS, "orders")) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, errors.TopicExists) for outcome in outcomes) == 4


async def test_a_hashed_name_is_stored_with_the_topic_and_deleted_with_it(member: Member) -> None:
    """CKA-15."""
    name = "x" * 249
    topic = await member.create_topic(OURS, name, partitions=1)
    assert topic.user_name == name and len(topic.name) <= 249
    assert member.image.instances[OURS].topic(name) is topic
    document = paths.instance_topic(OURS, topic.name)
    assert await member.tree.get(document) is not None
    await member.store.delete_topic(member.image, instance_id=OURS, name=name)
    await member.until(lambda image: topic.name not in image.topics)
    assert await member.tree.get(document) is None


async def test_allow_lists_written_before_the_topic_apply_from_its_creation_on(member: Member) -> None:
    """CKA-11, for plain and for hashed names."""
    for name in ("orders", "x" * 249):
        internal = naming.internal_topic(OURS, name)
        document = documents.InstanceTopicDocument(name=name, produce_ips=("10.0.0.1",)).to_json()
        parent = paths.instance_topics(OURS)
        parents = [] if await member.tree.get(parent) else [Create(parent)]
        await member.tree.commit([*parents, Create(paths.instance_topic(OURS, internal), document)])
        assert (await member.create_topic(OURS, name, partitions=1)).produce_ips == ("10.0.0.1",)


async def test_a_config_left_behind_is_not_inherited(member: Member) -> None:
    path = paths.topic_config(f"{OURS}.orders")
    await member.tree.commit([Create(path, documents.config_to_json({"retention.ms": "1"}))])
    assert (await member.create_topic(OURS, "orders", config={})).config == {}


async def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(member: Member, ensemble: FakeEnsemble) -> None:
    """CTL-20."""
    topic = await member.create_topic(OURS, "orders", partitions=3)
    await member.store.delete_topic(member.image, instance_id=OURS, name="orders")
    await member.until(lambda image: topic.name not in image.topics)
    assert [path for path in ensemble.nodes if topic.name in path] == []
    again = await member.create_topic(OURS, "orders", partitions=1)
    assert again.topic_id != topic.topic_id


async def test_an_instance_cannot_touch_anothers_topic(member: Member) -> None:
    """CKA-10: unknown and foreign topics are refused alike."""
    await create(member, "orders", THEIRS)
    for name in ("orders", "nothing", f"{THEIRS}.orders", "__usage"):
        refusals = set()
        for attempt in (
            member.store.delete_topic(member.image, instance_id=OURS, name=name),
            member.store.create_partitions(member.image, TopicGrowth(OURS, name, total=9)),
            member.store.alter_topic_config(member.image, instance_id=OURS, name=name, change=dict),
        ):
            with pytest.raises(errors.UnknownTopic) as refused:
                await attempt
            refusals.add(str(refused.value))
        assert refusals == {"This server does not host this topic-partition."}


@pytest.mark.parametrize("state", ["frozen", "deleting"])
async def test_a_frozen_or_leaving_instance_gets_no_topics(member: Member, state: str) -> None:
    await member.publish_instance(OURS, [1, 2], state=state, generation=2)
    with pytest.raises(errors.InstanceNotWritable):
        await create(member, "orders")


async def test_an_instance_has_no_more_partitions_than_its_limit(member: Member) -> None:
    await member.publish_instance(OURS, [1, 2], partitions_max=4, generation=2)
    await create(member, "one", partitions=3)
    with pytest.raises(errors.PolicyViolation):
        await create(member, "two", partitions=2)
    with pytest.raises(errors.PolicyViolation):
        await member.store.create_partitions(member.image, TopicGrowth(OURS, "one", total=5))
    await create(member, "two", partitions=1)


async def test_all_creations_of_one_request_count_together(member: Member) -> None:
    await member.publish_instance(OURS, [1, 2], partitions_max=4, generation=2)
    before = member.image
    item = await member.store.create_topic(before, TopicSpec(OURS, "one", partitions=3))
    with pytest.raises(errors.PolicyViolation, match="has 3; 2 more"):
        await member.store.create_topic(before, TopicSpec(OURS, "two", partitions=2), pending_creations=[item])
    two = await member.store.create_topic(before, TopicSpec(OURS, "two", partitions=1), pending_creations=[item])
    with pytest.raises(errors.PolicyViolation, match="has 4; 1 more"):
        await member.store.create_topic(
            member.image, TopicSpec(OURS, "three", partitions=1), pending_creations=[item, two]
        )


async def test_growth_keeps_existing_partitions_and_gives_new_ones_leaders(member: Member) -> None:
    """REP-35, ASG-9."""
    before = await member.create_topic(OURS, "orders", partitions=2)
    plan = await member.store.create_partitions(member.image, TopicGrowth(OURS, "orders", total=5))
    assert len(plan.assignment) == 5
    image = await member.until(
        lambda image: len(image.topics[before.name].partitions) == 5 and image.topics[before.name].has_leaders
    )
    assert image.topics[before.name].partitions[:2] == before.partitions


@pytest.mark.parametrize(
    ("total", "assignment", "refusal"),
    [
        (2, None, errors.InvalidPartitions),
        (1, None, errors.InvalidPartitions),
        (5_000, None, errors.InvalidPartitions),
        (3, [[1], [2]], errors.InvalidReplicaAssignment),
        (3, [[3]], errors.InvalidReplicaAssignment),
        (3, [[1, 2]], errors.InvalidReplicaAssignment),
        (3, [[]], errors.InvalidReplicaAssignment),
    ],
)
async def test_wrong_growth_is_refused(
    member: Member, total: int, assignment: list[list[int]] | None, refusal: type[errors.Refused]
) -> None:
    await create(member, "orders", partitions=2, replication_factor=1)
    with pytest.raises(refusal):
        await member.store.create_partitions(
            member.image, TopicGrowth(OURS, "orders", total=total, assignment=assignment)
        )


async def test_a_config_change_that_lost_a_race_is_applied_to_the_new_value(member: Member) -> None:
    topic = await member.create_topic(OURS, "orders", config={"retention.ms": "1"})
    interrupted = []

    def interfere(operations: list[Operation]) -> None:
        if not interrupted:
            interrupted.append(True)
            winner = documents.config_to_json({"retention.ms": "2", "cleanup.policy": "compact"})
            member.tree.ensemble.commit(member.tree, [Set(paths.topic_config(topic.name), winner, None)])

    member.tree.before_commit = interfere
    result, change = await member.store.alter_topic_config(
        member.image, instance_id=OURS, name="orders", change=lambda config: {**config, "segment.bytes": "9"}
    )
    assert result == {"retention.ms": "2", "cleanup.policy": "compact", "segment.bytes": "9"}
    await member.until(lambda image: image.config_change >= change)
    assert member.image.topics[topic.name].config == result


def entity(user: object = ..., client: object = ...) -> QuotaEntity:
    return QuotaEntity(
        user is not ...,
        None if user is ... else user,  # type: ignore[arg-type]
        client is not ...,
        None if client is ... else client,  # type: ignore[arg-type]
    )


async def test_a_quota_is_in_force_in_the_next_image_and_falls_back_when_removed(member: Member) -> None:
    """QUO-7, ZK-32."""
    store = member.store
    await store.alter_client_quotas(
        member.image, instance_id=OURS, entity=entity(client=None), changes={"producer_byte_rate": 1_000.0}
    )
    await store.alter_client_quotas(
        member.image,
        instance_id=OURS,
        entity=entity("alice", "etl"),
        changes={"producer_byte_rate": 5.0, "request_percentage": 1.5},
    )

    def limit() -> tuple[float, int] | None:
        match = member.image.quotas.lookup(OURS, "producer_byte_rate", "alice", "etl")
        return match and (match.limit, match.level)

    await member.until(lambda image: limit() == (5.0, 1))
    assert member.image.quotas.lookup(THEIRS, "producer_byte_rate", "alice", "etl") is None
    await store.alter_client_quotas(
        member.image, instance_id=OURS, entity=entity("alice", "etl"), changes={"producer_byte_rate": None}
    )
    await member.until(lambda image: limit() == (1_000.0, 8))


async def test_an_empty_quota_is_deleted_with_its_empty_parents(member: Member, ensemble: FakeEnsemble) -> None:
    """QUO-73."""
    pair, alone = entity("alice", "etl"), entity("alice")
    for quota_entity in (pair, alone):
        await member.store.alter_client_quotas(
            member.image, instance_id=OURS, entity=quota_entity, changes={"consumer_byte_rate": 7.0}
        )
    for quota_entity in (alone, pair):
        await member.store.alter_client_quotas(
            member.image, instance_id=OURS, entity=quota_entity, changes={"consumer_byte_rate": None}
        )
    assert [path for path in ensemble.nodes if path.startswith(("/config/users/", "/config/clients/"))] == []


async def test_credentials_in_the_same_node_survive(member: Member) -> None:
    """QUO-74."""
    path = f"/config/users/{OURS}.alice"
    await member.tree.commit([Create(path, documents.config_to_json({"SCRAM-SHA-256": "salt=x"}))])
    removed_too = {"SCRAM-SHA-256": None}
    for changes in ({"producer_byte_rate": 9.0}, {"producer_byte_rate": None}, removed_too):
        await member.store.alter_client_quotas(member.image, instance_id=OURS, entity=entity("alice"), changes=changes)
    node = await member.tree.get(path)
    assert node is not None and documents.config_from_json(node.data) == {"SCRAM-SHA-256": "salt=x"}


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        (entity(), {"producer_byte_rate": 1.0}),
        (entity(""), {"producer_byte_rate": 1.0}),
        (entity("a" * 1_025), {"producer_byte_rate": 1.0}),
        (entity("a"), {"nonsense": 1.0}),
        (entity("a"), {"producer_byte_rate": 1.5}),
        (entity("a"), {"producer_byte_rate": float("nan")}),
        (entity("a"), {"request_percentage": float("inf")}),
        (entity("a"), {"consumer_byte_rate": -1.0}),
        (entity("a"), {"consumer_byte_rate": 1e30}),
    ],
)
async def test_wrong_quotas_are_refused(member: Member, wanted: QuotaEntity, changes: dict[str, float]) -> None:
    """QUO-71."""
    with pytest.raises(errors.Refused) as refused:
        await member.store.alter_client_quotas(member.image, instance_id=OURS, entity=wanted, changes=changes)
    assert refused.value.wire_code == 42


async def test_blocks_of_producer_ids_never_overlap(member: Member, ensemble: FakeEnsemble) -> None:
    """IDE-1, with six brokers at once."""
    blocks = await asyncio.gather(*(member.store.next_producer_id_block(1) for _ in range(6)))
    assert sorted(block.start for block in blocks) == [0, 1000, 2000, 3000, 4000, 5000]
    assert all(len(block) == 1000 for block in blocks)
    assert json.loads(ensemble.nodes[paths.PRODUCER_ID_BLOCK].data)["block_end"] == "5999"


async def test_an_acknowledgement_belongs_to_the_session_and_can_be_withdrawn(
    member: Member, ensemble: FakeEnsemble
) -> None:
    path = paths.instance_ack(OURS, 1)
    for generation in (1, 2):
        ack = InstanceAck(generation=generation, port=1, listening=True)
        await member.store.acknowledge_instance(1, OURS, ack)
        assert InstanceAck.from_json(ensemble.nodes[path].data) == ack
        assert ensemble.nodes[path].owner == member.tree.session_id
    ensemble.nodes[path].owner = 12345
    await member.store.acknowledge_instance(1, OURS, InstanceAck(generation=2, port=1, listening=True))
    assert ensemble.nodes[path].owner == member.tree.session_id
    await member.store.acknowledge_instance(1, OURS, None)
    await member.store.acknowledge_instance(1, OURS, None)
    assert path not in ensemble.nodes


async def test_a_tree_of_another_cluster_is_refused(ensemble: FakeEnsemble, member: Member) -> None:
    with pytest.raises(errors.Conflict):
        await member.store.prepare("cl-other")
