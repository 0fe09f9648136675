"""Elections and reassignments through the store: writes, refusals and races (REP-28 to REP-33)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from brokers.contract import documents, paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.election_plans import ElectionType
from brokers.engine.cluster.election_writes import ElectionResult
from brokers.engine.cluster.image import PartitionImage
from brokers.engine.cluster.reassignment_plans import Assignment
from brokers.engine.cluster.reassignment_writes import ReassignmentStarted
from brokers.engine.cluster.topic_plans import TopicGrowth
from brokers.engine.cluster.tree import Operation, Set
from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

OURS = "ins-aaaaaaaa"
TOPIC = f"{OURS}.orders"


@pytest.fixture
async def ensemble() -> FakeEnsemble:
    return FakeEnsemble()


@pytest.fixture
async def members(ensemble: FakeEnsemble) -> AsyncIterator[list[Member]]:
    """Returns brokers 1 to 4, of which 1 to 3 host our instance; once its topics are created, there is no
    controller.
    """
    members = [Member(ensemble.connect(), broker_id=id, controls=id == 1) for id in (1, 2, 3, 4)]
    for member in members:
        await member.start()
    await members[0].until(lambda image: len(image.brokers) == 4)
    await members[0].publish_instance(OURS, [1, 2, 3])
    await members[0].create_topic(OURS, "orders", assignment={0: (1, 2), 1: (2, 3)})
    await members[0].until_complete()
    await members[0].crash()
    yield members
    for member in members:
        await member.stop()


async def stored(member: Member, index: int = 0) -> tuple[TopicDocument, PartitionStateDocument]:
    topic, state = await member.tree.get_many([paths.topic(TOPIC), paths.partition_state(TOPIC, index)])
    assert topic is not None and state is not None
    return TopicDocument.from_json(topic.data), PartitionStateDocument.from_json(state.data)


async def put_state(member: Member, index: int = 0, **changed: object) -> PartitionImage:
    """Writes the partition's state as another broker would, and waits until the image shows it."""
    _, state = await stored(member, index)
    wanted = replace(state, **changed)  # type: ignore[arg-type]
    if "isr_broker_epochs" not in changed:
        epochs = tuple(member.image.brokers[id].epoch for id in wanted.isr)
        wanted = replace(wanted, isr_broker_epochs=epochs)
    await member.tree.commit(
        [Set(paths.partition_state(TOPIC, index), wanted.to_json(), None), changes.topics_announcement([TOPIC])]
    )
    image = await member.until(lambda image: image.topics[TOPIC].partitions[index].isr == wanted.isr)
    image = await member.until(lambda image: image.topics[TOPIC].partitions[index].leader == wanted.leader)
    return image.topics[TOPIC].partitions[index]


async def elect(member: Member, *indexes: int, kind: ElectionType = ElectionType.PREFERRED) -> list[object]:
    answers = await member.store.elect_leaders(member.image, [(TOPIC, index) for index in indexes], kind)
    return [answers[TOPIC, index] for index in indexes]


async def move(member: Member, target: Sequence[int] | None, index: int = 0) -> object:
    """Reassigns partition `index` and returns when the image shows the write."""
    answers = await member.store.reassign(member.image, {TOPIC: {index: target}})
    outcome = answers[TOPIC, index]
    if isinstance(outcome, ReassignmentStarted):
        await member.until(lambda image: image.topics[TOPIC].version >= outcome.topic_version)
    return outcome


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_an_in_sync_preferred_leader_becomes_the_leader_in_the_next_epoch(members: list[Member]) -> None:
    before = await put_state(members[1], leader=2, isr=(2, 1))
    assert await elect(members[1], 0) == [ElectionResult(1, before.leader_epoch + 1)]
    _, state = await stored(members[1])
    assert (state.leader, state.isr) == (1, (2, 1))
    assert state.isr_broker_epochs == tuple(members[1].image.brokers[id].epoch for id in (2, 1))
    image = await members[2].until(lambda image: image.topics[TOPIC].partitions[0].leader == 1)
    assert image.topics[TOPIC].partitions[0].leader_epoch == before.leader_epoch + 1


async def test_no_election_is_needed_for_the_current_leader(members: list[Member]) -> None:
    _, before = await stored(members[1])
    outcomes = await elect(members[1], 0, 1)
    assert [type(outcome) for outcome in outcomes] == [errors.ElectionNotNeeded] * 2
    outcomes = await elect(members[1], 0, kind=ElectionType.UNCLEAN)
    assert [type(outcome) for outcome in outcomes] == [errors.ElectionNotNeeded]
    assert (await stored(members[1]))[1] == before


async def test_a_preferred_leader_out_of_sync_is_not_elected(members: list[Member]) -> None:
    await put_state(members[1], leader=2, isr=(2,))
    assert [type(outcome) for outcome in await elect(members[1], 0)] == [errors.PreferredLeaderNotAvailable]


async def test_a_preferred_leader_of_another_incarnation_is_not_elected(
    members: list[Member], ensemble: FakeEnsemble
) -> None:
    """Its name is still in the ISR, but from a former incarnation (CTL-10)."""
    await put_state(members[1], leader=2, isr=(2, 1))
    before = members[1].image.brokers[1].epoch
    ensemble.expire(members[0].tree)
    await members[1].until(lambda image: 1 in image.brokers and image.brokers[1].epoch != before)
    assert [type(outcome) for outcome in await elect(members[1], 0)] == [errors.PreferredLeaderNotAvailable]


async def test_an_unclean_election_elects_the_first_live_replica(members: list[Member], ensemble: FakeEnsemble) -> None:
    await put_state(members[2], leader=-1, isr=(2,))
    ensemble.end(members[1].tree)
    await members[2].until(lambda image: 2 not in image.brokers)
    await elect(members[2], 0, kind=ElectionType.UNCLEAN)
    _, state = await stored(members[2])
    assert (state.leader, state.isr) == (1, (1,))
    assert state.isr_broker_epochs == (members[2].image.brokers[1].epoch,)


async def test_an_unclean_election_prefers_a_member_of_the_isr(members: list[Member]) -> None:
    await put_state(members[2], leader=-1, isr=(2,))
    await elect(members[2], 0, kind=ElectionType.UNCLEAN)
    _, state = await stored(members[2])
    assert (state.leader, state.isr) == (2, (2,))


async def test_an_unclean_election_prefers_a_former_isr_member(members: list[Member]) -> None:
    await put_state(members[2], leader=-1, isr=(2,), isr_broker_epochs=(1,))
    await elect(members[2], 0, kind=ElectionType.UNCLEAN)
    _, state = await stored(members[2])
    assert (state.leader, state.isr, state.isr_broker_epochs) == (2, (2,), (members[2].image.brokers[2].epoch,))


async def test_no_leader_is_elected_without_a_live_replica(members: list[Member], ensemble: FakeEnsemble) -> None:
    for id in (1, 2):
        ensemble.end(members[id - 1].tree)
    await members[2].until(lambda image: set(image.brokers) == {3, 4})
    outcomes = await elect(members[2], 0, kind=ElectionType.UNCLEAN)
    assert [type(outcome) for outcome in outcomes] == [errors.EligibleLeadersNotAvailable]


async def test_an_election_that_loses_its_race_is_decided_again(members: list[Member]) -> None:
    await put_state(members[1], leader=2, isr=(2, 1))
    await put_state(members[1], index=1, leader=3, isr=(3, 2))
    tree = members[1].tree

    def shrink(_operations: Sequence[Operation]) -> None:
        tree.before_commit = None
        state = documents.PartitionStateDocument.from_json(
            members[1].tree.ensemble.nodes[paths.partition_state(TOPIC, 0)].data
        )
        lonely = replace(state, isr=(2,), isr_broker_epochs=state.isr_broker_epochs[:1])
        tree.ensemble.commit(tree, [Set(paths.partition_state(TOPIC, 0), lonely.to_json(), None)])

    tree.before_commit = shrink
    first, second = await elect(members[1], 0, 1)
    assert isinstance(first, errors.PreferredLeaderNotAvailable)
    assert isinstance(second, ElectionResult) and second.leader == 2


# -- reassignments -----------------------------------------------------------------------------------------------------


async def test_a_reassignment_names_added_and_removed_replicas_and_waits_for_the_controller(
    members: list[Member],
) -> None:
    _, before = await stored(members[1])
    outcome = await move(members[1], (2, 3))
    assert isinstance(outcome, ReassignmentStarted) and outcome.assignment == Assignment((2, 3, 1), (3,), (1,))
    document, state = await stored(members[1])
    assert document.assignment[0] == (2, 3, 1)
    assert (document.adding, document.removing) == ({0: (3,)}, {0: (1,)})
    assert state == before
    partition = members[1].image.topics[TOPIC].partitions[0]
    assert partition.is_reassigning and partition.target == (2, 3)


async def test_a_reassignment_can_be_cancelled(members: list[Member]) -> None:
    await move(members[1], (2, 3))
    outcome = await move(members[1], None)
    assert isinstance(outcome, ReassignmentStarted) and outcome.assignment == Assignment((2, 1))
    document, _ = await stored(members[1])
    assert (document.adding, document.removing) == ({}, {})
    assert isinstance(await move(members[1], None), errors.NoReassignmentInProgress)


async def test_a_new_target_replaces_the_previous_one(members: list[Member]) -> None:
    await move(members[1], (2, 3))
    outcome = await move(members[1], (1,))
    assert isinstance(outcome, ReassignmentStarted) and outcome.assignment == Assignment((1, 2), (), (2,))


async def test_a_removed_replica_leaves_the_isr_in_the_same_transaction(members: list[Member]) -> None:
    """The leader epoch increases, so that a concurrent ISR change of the leader fails."""
    await move(members[1], (2, 3))
    before = await put_state(members[1], leader=1, isr=(1, 2, 3))
    outcome = await move(members[1], None)
    assert isinstance(outcome, ReassignmentStarted)
    _, state = await stored(members[1])
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), before.leader_epoch + 1)


async def test_a_removed_leader_transfers_the_leadership(members: list[Member]) -> None:
    await move(members[1], (3,))
    await put_state(members[1], leader=3, isr=(3, 1, 2))
    await move(members[1], None)
    _, state = await stored(members[1])
    assert (state.leader, state.isr) == (1, (1, 2))


async def test_the_only_in_sync_replica_is_not_removed(members: list[Member]) -> None:
    await move(members[1], (3,))
    await put_state(members[1], leader=3, isr=(3,))
    assert isinstance(await move(members[1], None), errors.InvalidReplicaAssignment)
    document, state = await stored(members[1])
    assert document.assignment[0] == (3, 1, 2) and state.leader == 3


async def test_another_order_of_the_same_replicas_is_no_reassignment(members: list[Member]) -> None:
    await move(members[1], (2, 1))
    partition = members[1].image.topics[TOPIC].partitions[0]
    assert partition.replicas == (2, 1) and not partition.is_reassigning


async def test_an_unchanged_assignment_is_not_written(members: list[Member]) -> None:
    version = members[1].image.topics[TOPIC].version
    outcome = await move(members[1], (1, 2))
    assert isinstance(outcome, ReassignmentStarted) and outcome.topic_version == version
    assert members[1].image.topics[TOPIC].version == version


@pytest.mark.parametrize(
    "target", [(), (2, 2), (1, 2, 3, 4), (1, -1), (1, 9), (1, 4)], ids=lambda target: f"to {target}"
)
async def test_an_invalid_target_is_refused(members: list[Member], target: tuple[int, ...]) -> None:
    """Broker 4 is alive but does not host the instance, so that no client could reach a leader there."""
    before = await stored(members[1])
    assert isinstance(await move(members[1], target), errors.InvalidReplicaAssignment)
    assert await stored(members[1]) == before


async def test_a_dead_broker_may_remain_a_replica_but_not_be_added(
    members: list[Member], ensemble: FakeEnsemble
) -> None:
    ensemble.end(members[0].tree)
    await members[1].until(lambda image: 1 not in image.brokers)
    assert isinstance(await move(members[1], (1, 3)), ReassignmentStarted)
    assert isinstance(await move(members[1], (1, 3), index=1), errors.InvalidReplicaAssignment)


async def test_each_partition_of_a_request_has_its_own_result(members: list[Member]) -> None:
    answers = await members[1].store.reassign(members[1].image, {TOPIC: {0: (2, 3), 1: None, 9: (1,)}})
    assert isinstance(answers[TOPIC, 0], ReassignmentStarted)
    assert isinstance(answers[TOPIC, 1], errors.NoReassignmentInProgress)
    assert isinstance(answers[TOPIC, 9], errors.UnknownTopic)


async def test_a_reassignment_that_loses_its_race_is_planned_again(members: list[Member]) -> None:
    tree = members[1].tree

    def grow(_operations: Sequence[Operation]) -> None:
        tree.before_commit = None
        node = tree.ensemble.nodes[paths.topic(TOPIC)]
        document = TopicDocument.from_json(node.data)
        grown = replace(document, assignment={**document.assignment, 2: (3, 1)})
        tree.ensemble.commit(tree, [Set(paths.topic(TOPIC), grown.to_json(), None)])

    tree.before_commit = grow
    assert isinstance(await move(members[1], (2, 3)), ReassignmentStarted)
    document, _ = await stored(members[1])
    assert document.assignment == {0: (2, 3, 1), 1: (2, 3), 2: (3, 1)}


async def test_a_topic_does_not_grow_during_a_reassignment(members: list[Member]) -> None:
    await move(members[1], (2, 3))
    with pytest.raises(errors.ReassignmentInProgress):
        await members[1].store.create_partitions(members[1].image, TopicGrowth(OURS, "orders", total=5))
    await move(members[1], None)
    await members[1].store.create_partitions(members[1].image, TopicGrowth(OURS, "orders", total=5))


async def test_a_deleted_topic_is_not_reassigned(members: list[Member], ensemble: FakeEnsemble) -> None:
    image = members[1].image
    await members[1].store.delete_topic(image, instance_id=OURS, name="orders")
    await members[1].until(lambda image: image.topics[TOPIC].deleting)
    answers = await members[1].store.reassign(image, {TOPIC: {0: (2, 3)}})
    assert isinstance(answers[TOPIC, 0], errors.UnknownTopic)
