"""Histories that leader epochs were introduced for, on real logs (REP-9, REP-15 to REP-20, REP-24, REP-25; KIP-101,
KIP-279).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.records import error_codes
from tests.unit.brokers.engine.replication.replica_world import BROKERS, LAG_MS_MAX, ReplicaWorld


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    made = ReplicaWorld(tmp_path, min_insync=1)
    for broker in BROKERS:
        made.show(broker)
    return made


def lead(world: ReplicaWorld, broker: int, *seen_by: int) -> None:
    """Makes `broker` the leader; only `seen_by` learn of it."""
    world.elect(broker)
    assert world.state.leader == broker
    for replica in seen_by:
        world.show(replica)


def fetch(world: ReplicaWorld, *brokers: int) -> None:
    for broker in brokers:
        world.fetch(broker)


def end_of(world: ReplicaWorld, broker: int) -> int:
    partition = world.replicas[broker].partition
    assert partition is not None
    return partition.log_end_offset


def watermark_of(world: ReplicaWorld, broker: int) -> int:
    partition = world.replicas[broker].partition
    assert partition is not None
    return partition.high_watermark


def test_a_follower_that_restarts_before_it_knows_the_high_watermark_keeps_committed_records(
    world: ReplicaWorld,
) -> None:
    """REP-18 a: without epochs it truncated the log to its own high watermark, and was elected without the rest."""
    world.produce(1)
    fetch(world, 2, 3)
    fetch(world, 2, 3)
    assert [record.offset for record in world.acknowledged] == [0]
    world.produce(1)
    fetch(world, 2, 3)
    world.fetch(3)  # confirms the second record for 3, which is not committed before 2 has confirmed it too
    world.replicas[2].kill()
    world.replicas[2].start()
    world.show(2)
    world.replicas[1].kill()

    world.elect(3)
    lead_epoch = world.state.leader_epoch
    for broker in (2, 3):
        world.show(broker)
    fetch(world, 2)

    assert lead_epoch == 1
    leader = world.heal()
    assert leader.log_end_offset == 2
    assert [record.offset for record in world.acknowledged] == [0]


def test_logs_converge_when_the_lagging_replica_leads_first(world: ReplicaWorld) -> None:
    """REP-18 b: the same offsets have other records of another epoch."""
    world.produce(1)
    fetch(world, *BROKERS)
    fetch(world, *BROKERS)
    world.produce(1, 2)  # fetched by no follower
    world.replicas[1].kill()
    lead(world, 2, 2, 3)
    world.produce(2)
    world.replicas[1].start()
    world.show(1)

    assert (end_of(world, 1), end_of(world, 2)) == (3, 2)
    assert world.fetch(1) == "truncated"
    assert end_of(world, 1) == 1
    assert world.fetch(1) == "appended"
    assert world.batches(1) == world.batches(2)


def test_two_leader_changes_in_quick_succession_converge(world: ReplicaWorld) -> None:
    """KIP-279: the leader never had the follower's epoch; both go back to an epoch that both know."""
    world.produce(1)
    fetch(world, 2, 3)
    fetch(world, 2, 3)
    lead(world, 2, 2)  # 1 and 3 do not learn of it
    world.produce(2)
    world.produce(1)
    world.produce(1)
    lead(world, 3, 3, 1)  # 2 does not learn of it
    world.produce(3)

    assert world.fetch(1) == "truncated"
    assert world.fetch(1) == "appended"
    assert world.batches(1) == world.batches(3)
    world.show(2)
    assert world.fetch(2) == "truncated"
    assert world.fetch(2) == "appended"
    assert world.batches(2) == world.batches(3)


def test_an_epoch_without_records_is_dropped_with_the_leadership(world: ReplicaWorld) -> None:
    world.produce(1)
    fetch(world, 2, 3)
    lead(world, 2, 2)
    lead(world, 3, 2, 3)

    assert world.fetch(2) == "truncated"
    assert end_of(world, 2) == 1
    assert world.fetch(2) == "caught up"


def test_an_outdated_leader_is_not_trusted(world: ReplicaWorld) -> None:
    """LOG-32: a follower in the next epoch fetches, and the old leader does not know that epoch."""
    lead(world, 2, 3)
    partition = world.replicas[3].partition
    assert partition is not None
    partition.leader = 1

    assert world.fetch(3) == f"refused with {error_codes.UNKNOWN_LEADER_EPOCH}"


def test_an_outdated_follower_is_fenced(world: ReplicaWorld) -> None:
    lead(world, 1)
    world.replicas[3].kill()
    world.elect(1)
    world.show(1)

    assert world.fetch(2) == f"refused with {error_codes.FENCED_LEADER_EPOCH}"


def test_an_isr_that_lost_its_race_never_takes_effect(world: ReplicaWorld) -> None:
    """REP-25: the old leader tries to remove 2 from the ISR and does not know that 2 leads."""
    lead(world, 2, 2)
    world.produce(1)
    for _ in range(2):
        world.now_ms += LAG_MS_MAX * 2 // 3
        world.fetch(3)

    world.write_isr(1)
    fetch(world, 3, 3)

    assert world.replicas[1].proposed_on is not None
    assert world.state.isr == BROKERS
    assert watermark_of(world, 1) == 0
    assert world.acknowledged == []


def test_a_lagging_follower_leaves_the_isr_and_joins_it_when_caught_up(world: ReplicaWorld) -> None:
    """REP-22, REP-23: meanwhile the high watermark waits for the members of both ISRs."""
    world.produce(1)
    for _ in range(2):
        world.now_ms += LAG_MS_MAX * 2 // 3
        fetch(world, 3)
    world.write_isr(1)
    assert world.state.isr == (1, 3)
    assert watermark_of(world, 1) == 0
    world.show(1)
    assert watermark_of(world, 1) == 1

    fetch(world, 2, 2)
    world.write_isr(1)

    assert world.state.isr == (1, 3, 2)


def test_a_broker_that_lost_records_joins_the_isr_only_when_caught_up(world: ReplicaWorld) -> None:
    """REP-20: a power cut destroyed its tail, and it was back before anybody noticed."""
    world.produce(1)
    fetch(world, 2, 3)
    fetch(world, 2, 3)
    assert [record.offset for record in world.acknowledged] == [0]
    world.replicas[2].kill()
    world.replicas[2].start()
    world.show(2)
    partition = world.replicas[2].partition
    assert partition is not None
    world.replicas[2].table.truncate(partition, 0, 0)

    world.replicas[1].kill()
    lead(world, 3, 2, 3)

    assert world.state.isr == (3,)
    fetch(world, 2, 2)
    world.write_isr(3)
    assert world.state.isr == (3, 2)
    assert world.batches(2) == world.batches(3)


def test_a_follower_below_the_leaders_log_restarts_at_its_start(world: ReplicaWorld) -> None:
    """REP-9."""
    for _ in range(12):
        world.produce(1)
        fetch(world, 2)
    leader = world.replicas[1].partition
    assert leader is not None
    leader.high_watermark = leader.log_end_offset
    leader.log.advance_start(8)

    assert world.fetch(3) == "out of range"
    assert end_of(world, 3) == 8
    while world.fetch(3) == "appended":
        pass
    follower = world.replicas[3].partition
    assert follower is not None
    assert (follower.log_start_offset, follower.log_end_offset) == (8, 12)
    assert world.batches(3) == world.batches(1)[8:]


def test_a_log_that_starts_within_a_batch_is_replicated_from_there(world: ReplicaWorld) -> None:
    """LOG-46: records were deleted up to an offset within a batch."""
    world.produce(1, 3)
    leader = world.replicas[1].partition
    assert leader is not None
    leader.high_watermark = 3
    leader.log.advance_start(2)

    assert world.fetch(3) == "out of range"
    assert world.fetch(3) == "appended"
    follower = world.replicas[3].partition
    assert follower is not None
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 3)
    assert world.batches(3) == world.batches(1)


def test_too_few_in_sync_replicas_refuse_acks_all(tmp_path: Path) -> None:
    """REP-13."""
    world = ReplicaWorld(tmp_path, min_insync=2)
    for broker in BROKERS:
        world.show(broker)
    for broker in (2, 3):
        world.replicas[broker].kill()
    world.elect(1)
    world.show(1)

    assert world.produce(1) == error_codes.NOT_ENOUGH_REPLICAS
