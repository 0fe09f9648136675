"""Replica assignment: the spec's vectors (ASG-2, 3, 5, 6) and its properties over every small cluster (ASG-4,
TST-8).
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.cluster.errors import InvalidReplicationFactor
from brokers.engine.controller.placement import (
    Placer,
    Strategy,
    interleave_racks,
    rack_aware,
    rack_round_robin,
    random_shift,
    round_robin,
)

BROKERS_MAX = 12
PARTITIONS_MAX = 48
FACTOR_MAX = 5


def digits(assignment: dict[int, tuple[int, ...]]) -> str:
    return " ".join("".join(map(str, assignment[index])) for index in sorted(assignment))


def no_randomness(_below: int) -> int:
    return 0


def test_random_shift_gives_the_vectors_of_asg_2() -> None:
    first = random_shift(range(5), partitions=10, replication_factor=3, start=0, shift=0)
    assert digits(first) == "012 123 234 340 401 023 134 240 301 412"
    second = random_shift(range(5), partitions=5, replication_factor=2, start=2, shift=3)
    assert digits(second) == "21 32 43 04 10"


def test_round_robin_gives_the_vectors_of_asg_3() -> None:
    assert digits(round_robin(range(4), partitions=4, replication_factor=2)) == "01 12 23 30"
    assert digits(round_robin(range(6), partitions=6, replication_factor=2)) == "01 12 23 34 45 50"
    assert digits(round_robin(range(1, 6), partitions=3, replication_factor=2)) == "12 23 34"


def test_rack_aware_gives_the_vector_of_asg_6() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert interleave_racks(racks) == [0, 3, 1, 5, 4, 2]
    placed = rack_aware(racks, partitions=6, replication_factor=3, start=0, shift=0)
    assert digits(placed) == "031 315 154 542 420 203"


@pytest.mark.parametrize("brokers", range(1, BROKERS_MAX + 1))
def test_every_small_cluster_spreads_replicas_and_leaders(brokers: int) -> None:
    """ASG-4 over all brokers ≤ 12, partitions ≤ 48, RF ≤ 5."""
    for factor in range(1, min(FACTOR_MAX, brokers) + 1):
        for partitions in range(1, PARTITIONS_MAX + 1):
            for start in {0, brokers // 2, brokers - 1}:
                shifted = random_shift(
                    range(brokers), partitions=partitions, replication_factor=factor, start=start, shift=start
                )
                placed = round_robin(range(brokers), partitions=partitions, replication_factor=factor)
                for assignment in (shifted, placed):
                    check_spread(assignment, brokers, partitions)


def check_spread(assignment: dict[int, tuple[int, ...]], brokers: int, partitions: int) -> None:
    assert all(len(set(replicas)) == len(replicas) for replicas in assignment.values())
    leaders = Counter(replicas[0] for replicas in assignment.values())
    counts = [leaders.get(broker, 0) for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1
    if partitions % brokers == 0:
        assert len(set(counts)) == 1


@pytest.mark.parametrize("racks_count", [2, 3, 4])
def test_rack_aware_puts_replicas_into_different_racks_while_there_are_some(racks_count: int) -> None:
    for brokers in range(racks_count, BROKERS_MAX + 1):
        racks = {broker: f"r{broker % racks_count}" for broker in range(brokers)}
        for factor in range(1, min(FACTOR_MAX, brokers) + 1):
            for start in range(brokers):
                placed = rack_aware(racks, partitions=brokers * 2, replication_factor=factor, start=start, shift=start)
                for replicas in placed.values():
                    assert len(set(replicas)) == factor
                    assert len({racks[replica] for replica in replicas}) == min(factor, racks_count)


@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from("abcd"), min_size=1, max_size=BROKERS_MAX),
    strategy=st.sampled_from(("random_shift", "round_robin")),
    partitions=st.integers(1, PARTITIONS_MAX),
    data=st.data(),
)
def test_no_zone_has_two_replicas_of_a_partition_while_another_has_none(
    racks: dict[int, str], strategy: Strategy, partitions: int, data: st.DataObject
) -> None:
    """Zones of any sizes, of new topics and of added partitions."""
    factor = data.draw(st.integers(1, min(FACTOR_MAX, len(racks))))
    placer = Placer(lambda below: data.draw(st.integers(0, below - 1)), strategy)
    placed = placer(racks, partitions=partitions, replication_factor=factor)
    first_broker = data.draw(st.sampled_from([placed[0][0], 99]))
    added = placer(
        racks, partitions=partitions, replication_factor=factor, first_id=partitions, first_broker=first_broker
    )
    assert list({**placed, **added}) == list(range(2 * partitions))
    for replicas in (*placed.values(), *added.values()):
        assert len(set(replicas)) == factor
        assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks.values())))


def test_round_robin_over_equal_racks_is_round_robin_over_interleaved_brokers() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    placed = rack_round_robin(racks, partitions=4, replication_factor=2)
    assert placed == round_robin(interleave_racks(racks), partitions=4, replication_factor=2)
    uneven = rack_round_robin({1: "a", 2: "b", 3: "b", 4: "b"}, partitions=4, replication_factor=2)
    assert digits(uneven) == "12 21 31 41"


def test_adding_partitions_goes_on_where_the_topic_began() -> None:
    """ASG-5: start is the index of partition 0's first replica, ids go on from the present count."""
    whole = random_shift(range(5), partitions=8, replication_factor=2, start=2, shift=2)
    added = Placer(no_randomness)(
        dict.fromkeys(range(5)), partitions=3, replication_factor=2, first_id=5, first_broker=2
    )
    assert list(added) == [5, 6, 7]
    assert [added[index][0] for index in added] == [whole[index][0] for index in added]


def test_growing_a_cluster_moves_nothing_that_is_there() -> None:
    """ASG-9 (S4): from 4 brokers and 4 partitions to 6 and 6; only the added partitions use the added brokers."""
    placer = Placer(no_randomness, "round_robin")
    before = placer(dict.fromkeys(range(4)), partitions=4, replication_factor=2)
    added = placer(dict.fromkeys(range(6)), partitions=2, replication_factor=2, first_id=4, first_broker=0)
    assert digits({**before, **added}) == "01 12 23 30 45 50"


def test_the_dice_are_thrown_for_the_first_broker_and_the_shift() -> None:
    thrown = iter([2, 3])
    placed = Placer(lambda below: next(thrown))(dict.fromkeys(range(5)), partitions=5, replication_factor=2)
    assert digits(placed) == "21 32 43 04 10"


def test_placing_depends_on_what_is_handed_in_and_on_nothing_else() -> None:
    """ASG-8: placement keeps no state, uses no randomness of its own, and does not change its arguments."""
    brokers, racks = [4, 2, 9, 1, 7], {4: "a", 2: "b", 9: "a", 1: "c", 7: "b"}
    size = {"partitions": 17, "replication_factor": 3}

    def placed() -> list[dict[int, tuple[int, ...]]]:
        return [
            random_shift(brokers, **size, start=3, shift=2, first_id=5),
            round_robin(brokers, **size, start=3, first_id=5),
            rack_aware(racks, **size, start=3, shift=2, first_id=5),
            Placer(no_randomness)(racks, **size, first_id=5),
        ]

    state, first = random.getstate(), placed()
    random.seed(1)
    seeded = random.getstate()
    assert placed() == first
    assert random.getstate() == seeded, "the dice of the process were not thrown"
    random.setstate(state)
    assert (brokers, racks) == ([4, 2, 9, 1, 7], {4: "a", 2: "b", 9: "a", 1: "c", 7: "b"})


def test_racks_known_for_some_brokers_only_are_refused() -> None:
    """ASG-7."""
    with pytest.raises(InvalidReplicationFactor):
        Placer(no_randomness)({0: "r1", 1: None}, partitions=1, replication_factor=1)


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_a_factor_that_does_not_fit_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        Placer(no_randomness)(dict.fromkeys(range(3)), partitions=1, replication_factor=factor)
