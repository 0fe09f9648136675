"""Reassignment plans after any earlier requests (REP-32, REP-33)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.image import BrokerInfo, PartitionImage
from brokers.engine.cluster.reassignment_plans import (
    Assignment,
    assignment_of,
    plan_reassignment,
    state_after,
    with_assignments,
)

BROKERS = {id: BrokerInfo(id, "h", 9000 + id, 9100 + id, None, epoch=50 + id) for id in range(1, 7)}
ELIGIBLE: dict[int, str | None] = dict.fromkeys(BROKERS)
FACTOR_MAX = 3

replica_lists = st.lists(st.sampled_from(sorted(BROKERS)), min_size=1, max_size=FACTOR_MAX, unique=True)


def plan(present: Assignment, target: Sequence[int] | None) -> Assignment:
    return plan_reassignment(present, target, ELIGIBLE, replication_factor_max=FACTOR_MAX)


def test_three_replicas_move_to_three_others() -> None:
    """Example of REP-32."""
    moving = plan(Assignment((1, 2, 3)), (4, 5, 6))
    assert moving == Assignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3))
    assert moving.original == (1, 2, 3)
    assert plan(moving, None) == Assignment((1, 2, 3))
    assert plan(moving, (4, 2)) == Assignment((4, 2, 1, 3), adding=(4,), removing=(1, 3))


@given(start=replica_lists, wishes=st.lists(st.none() | replica_lists, max_size=6))
def test_any_sequence_of_targets_leaves_an_executable_plan(start: list[int], wishes: list[list[int] | None]) -> None:
    present = Assignment(tuple(start))
    for wish in wishes:
        if wish is None and not present.is_reassigning:
            with pytest.raises(errors.NoReassignmentInProgress):
                plan(present, None)
            continue
        before, present = present, plan(present, wish)
        staying = tuple(replica for replica in present.replicas if replica not in present.removing)
        assert staying == (tuple(wish) if wish is not None else before.original)
        assert len(set(present.replicas)) == len(present.replicas)
        assert not set(present.adding) & set(present.removing)
        assert set(present.original) == set(start)
        assert set(present.adding) == set(staying) - set(start)
        assert set(present.removing) == set(start) - set(staying)


@given(start=replica_lists, wish=replica_lists, isr=st.data())
def test_a_removed_replica_leaves_the_isr_and_the_last_in_sync_one_is_never_removed(
    start: list[int], wish: list[int], isr: st.DataObject
) -> None:
    moving = plan(Assignment(tuple(start)), wish)
    in_sync = tuple(isr.draw(st.lists(st.sampled_from(moving.replicas), min_size=1, unique=True)))
    epochs = tuple(BROKERS[id].epoch for id in in_sync)
    partition = PartitionImage(
        0, moving.replicas, leader=in_sync[0], leader_epoch=7, isr=in_sync, version=3, isr_epochs=epochs
    )
    back = moving.with_target(moving.original)
    kept = [replica for replica in in_sync if replica in start]
    if not kept:
        with pytest.raises(errors.InvalidReplicaAssignment):
            state_after(partition, back, BROKERS, controller_epoch=1)
        return
    state = state_after(partition, back, BROKERS, controller_epoch=1)
    if set(moving.replicas) == set(start):
        assert state is None
        return
    assert state is not None
    assert list(state.isr) == kept and state.leader in kept and state.leader_epoch == 8
    assert state.isr_broker_epochs == tuple(BROKERS[id].epoch for id in kept)
    if partition.leader in kept:
        assert state.leader == partition.leader


@given(
    assignments=st.lists(replica_lists, min_size=1, max_size=4),
    targets=st.dictionaries(st.integers(0, 3), replica_lists, max_size=4),
)
def test_a_topic_document_names_exactly_the_moving_replicas(
    assignments: list[list[int]], targets: dict[int, list[int]]
) -> None:
    document = TopicDocument(topic_id="x", assignment={at: tuple(line) for at, line in enumerate(assignments)})
    changed = {
        index: plan(assignment_of(document, index), target)
        for index, target in targets.items()
        if index in document.assignment
    }
    moving = with_assignments(document, changed)
    moving = TopicDocument.from_json(moving.to_json())
    for index in document.assignment:
        expected = changed.get(index, assignment_of(document, index))
        assert assignment_of(moving, index) == expected
        assert (index in moving.adding or index in moving.removing) == expected.is_reassigning
    called_off = {index: plan(item, None) for index, item in changed.items() if item.is_reassigning}
    completed = with_assignments(moving, called_off)
    assert (completed.adding, completed.removing) == ({}, {})
