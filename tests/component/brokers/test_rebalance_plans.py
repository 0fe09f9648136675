"""Plans of moves: examples, properties for any fleet, and the number of concurrent moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.rebalancing.model import (
    BrokerCapacity,
    Fleet,
    PartitionReplicas,
    Reassignment,
    RebalancePlan,
    Share,
    next_reassignments,
    shares,
)
from brokers.rebalancing.planner import balance_plan, drain_plan, release_plan

MOVES_MAX = 200


def fleet(
    count: int,
    *partitions: PartitionReplicas,
    placements: dict[str, Sequence[int]] | None = None,
    racks: Sequence[str] = (),
    closed: Sequence[int] = (),
    placements_min: int = 3,
    sold: Mapping[str, tuple[int, int]] | None = None,
    limits: Mapping[int, tuple[int, int]] | None = None,
) -> Fleet:
    """Returns brokers 1 to `count`; those in `closed` take nothing. `limits` are what a broker can sell,
    MB/s and GB.
    """
    named = [racks[id - 1] if racks else "" for id in range(1, count + 1)]
    return Fleet(
        brokers={
            id: BrokerCapacity(id=id, rack=rack, accepts_replicas=id not in closed, can_sell=(limits or {}).get(id))
            for id, rack in enumerate(named, 1)
        },
        partitions=partitions,
        placements={owner: frozenset(brokers) for owner, brokers in (placements or {}).items()},
        placements_min=placements_min,
        sold=sold or {},
    )


def held(
    index: int, *replicas: int, owner: str | None = "i", size_bytes: int = 0, pinned: bool = False
) -> PartitionReplicas:
    topic = f"{owner or 'cluster'}.t"
    return PartitionReplicas(
        topic=topic, index=index, replicas=replicas, owner=owner, size_bytes=size_bytes, pinned=pinned
    )


def after(found: Fleet, plan: RebalancePlan) -> dict[int, Share]:
    return shares(found.brokers, found.partitions, plan.moves)


# --- emptying a broker ------------------------------------------------------------------------------------------------


def test_a_drained_broker_ends_with_nothing_and_the_others_share_it() -> None:
    parts = [held(index, 1 + index % 3, 1 + (index + 1) % 3) for index in range(30)]
    result = fleet(4, *parts, placements={"i": [1, 2, 3, 4]})
    plan = drain_plan(result, 3)
    left = after(result, plan)
    assert left[3] == Share()
    assert max(left[id].replicas for id in (1, 2, 4)) - min(left[id].replicas for id in (1, 2, 4)) <= 1
    assert max(left[id].leaders for id in (1, 2, 4)) - min(left[id].leaders for id in (1, 2, 4)) <= 2
    assert all(reassignment.before.count(3) == 1 for reassignment in plan.moves)


def test_an_instance_gets_a_placement_in_place_of_the_one_it_loses() -> None:
    """CKA-47: it has three brokers before and after, and replicas only where its clients can connect."""
    result = fleet(5, held(0, 3), placements={"i": [1, 2, 3], "empty": [2, 3, 4]})
    plan = drain_plan(result, 3)
    placement_changed = {change.owner: (change.arriving, change.leaving) for change in plan.placement_changes}
    assert placement_changed["i"] in (((4,), (3,)), ((5,), (3,)))
    assert len(placement_changed["empty"][0]) == 1
    (reassignment,) = plan.moves
    assert reassignment.target[0] in {1, 2, *placement_changed["i"][0]}


def test_where_no_broker_is_left_the_plan_names_the_topic_and_moves_nothing() -> None:
    result = fleet(3, held(0, 1, 2, 3), held(1, 3), placements={"i": [1, 2, 3]})
    plan = drain_plan(result, 3)
    assert plan.moves == () and plan.placement_changes == ()
    assert [(obstacle.owner, obstacle.topic) for obstacle in plan.obstacles] == [("i", "i.t")]
    assert "3 replica(s)" in plan.obstacles[0].detail


def test_the_last_broker_cannot_be_drained() -> None:
    plan = drain_plan(fleet(1, placements={"i": [1]}), 1)
    assert [obstacle.owner for obstacle in plan.obstacles] == ["i"]


def test_a_pinned_partition_is_copied_first_and_let_go_when_its_broker_has_stopped() -> None:
    """The broker's own partition has the last seconds of usage: it moves only after a copy is complete."""
    result = fleet(3, held(0, 1, owner=None, pinned=True), held(1, 3, owner=None, pinned=True))
    (reassignment,) = drain_plan(result, 3).moves
    assert reassignment.target[0] == 3 and len(reassignment.target) == 2
    copied = fleet(3, held(0, 1, owner=None, pinned=True), held(1, *reassignment.target, owner=None, pinned=True))
    assert drain_plan(copied, 3).moves == ()
    (release,) = release_plan(copied, 3).moves
    assert release.target == reassignment.target[1:]
    assert release_plan(result, 3).moves == ()


def test_a_rack_is_not_given_up_where_another_broker_keeps_it() -> None:
    result = fleet(4, held(0, 1, 3), placements={"i": [1, 2, 3, 4]}, racks=["a", "a", "b", "b"])
    (reassignment,) = drain_plan(result, 3).moves
    assert reassignment.target == (1, 4)


def test_an_instance_that_loses_a_placement_gets_one_where_there_is_room_for_what_is_sold() -> None:
    """Broker 4 stores least and has sold everything; broker 5 has capacity left."""
    result = fleet(
        5, held(0, 3), held(1, 5, owner="other"), placements={"i": [1, 2, 3], "full": [4], "other": [5]},
        placements_min=1, sold={"i": (30, 3), "full": (100, 1), "other": (1, 1)},
        limits=dict.fromkeys(range(1, 6), (100, 100)),
    )  # fmt: skip
    result = replace(result, placements_min=3, placements={**result.placements, "i": frozenset({1, 2, 3})})
    (placement_changed,) = [change for change in drain_plan(result, 3).placement_changes if change.owner == "i"]
    assert placement_changed.arriving == (5,)


# --- levelling --------------------------------------------------------------------------------------------------------


def test_an_added_broker_gets_its_share_of_one_large_instance() -> None:
    parts = [held(index, 1 + index % 3, 1 + (index + 1) % 3) for index in range(24)]
    result = fleet(4, *parts, placements={"i": [1, 2, 3]})
    plan = balance_plan(result, moves_max=MOVES_MAX)
    assert [(change.arriving, change.leaving) for change in plan.placement_changes] == [((4,), ())]
    left = after(result, plan)
    assert {left[id].replicas for id in range(1, 5)} == {12}
    assert max(change.leaders for change in left.values()) - min(change.leaders for change in left.values()) <= 1


def test_a_large_instance_does_not_just_change_places() -> None:
    """Three brokers have all of it, two have none: it spreads over five instead of moving."""
    parts = [held(index, 1 + index % 3, 1 + (index + 1) % 3) for index in range(30)]
    result = fleet(5, *parts, placements={"i": [1, 2, 3]})
    plan = balance_plan(result, moves_max=MOVES_MAX)
    assert [(sorted(change.arriving), change.leaving) for change in plan.placement_changes] == [([4, 5], ())]
    left = after(result, plan)
    assert max(change.replicas for change in left.values()) - min(change.replicas for change in left.values()) <= 2


def test_small_instances_move_whole_so_that_none_is_spread_further() -> None:
    names = [f"i{number}" for number in range(12)]
    parts = [held(index, 1 + index % 3, owner=name) for name in names for index in range(3)]
    result = fleet(4, *parts, placements={name: [1, 2, 3] for name in names})
    plan = balance_plan(result, moves_max=MOVES_MAX)
    assert plan.placement_changes and all(
        len(change.leaving) == len(change.arriving) == 1 for change in plan.placement_changes
    )
    left = after(result, plan)
    assert max(change.replicas for change in left.values()) - min(change.replicas for change in left.values()) <= 1


def test_large_partitions_count_for_more_than_small_ones() -> None:
    parts = [held(0, 1, size_bytes=900), held(1, 1, size_bytes=900), *(held(index, 2) for index in range(2, 4))]
    result = fleet(2, *parts, placements={"i": [1, 2]})
    left = after(result, balance_plan(result, moves_max=MOVES_MAX))
    assert left[1].size_bytes == left[2].size_bytes == 900


def test_leadership_is_passed_on_without_copying() -> None:
    parts = [held(index, 1, 2) for index in range(6)]
    result = fleet(2, *parts, placements={"i": [1, 2]})
    plan = balance_plan(result, moves_max=MOVES_MAX)
    assert plan.moves and plan.copied_bytes == 0 and not any(reassignment.adding for reassignment in plan.moves)
    assert [after(result, plan)[id].leaders for id in (1, 2)] == [3, 3]


def test_levelling_sells_no_broker_what_it_has_not() -> None:
    """Broker 4 is empty and can sell a third of what each other one has sold: it gets four of twelve instances."""
    names = [f"i{number}" for number in range(12)]
    parts = [held(index, 1 + index % 3, owner=name) for name in names for index in range(3)]
    wanted = {"placements": {name: [1, 2, 3] for name in names}, "sold": dict.fromkeys(names, (300, 3))}
    small = {1: (2_000, 100), 2: (2_000, 100), 3: (2_000, 100), 4: (400, 100)}
    for limits, most in ((small, 4), ({**small, 4: (2_000, 2)}, 2), ({**small, 4: (2_000, 100)}, 12)):
        result = fleet(4, *parts, limits=limits, **wanted)  # type: ignore[arg-type]
        plan = balance_plan(result, moves_max=MOVES_MAX)
        assert 0 < sum(4 in change.arriving for change in plan.placement_changes) <= most
        assert oversold(result, plan) == []


def test_where_the_emptiest_broker_is_sold_out_another_one_is_levelled_with() -> None:
    names = [f"i{number}" for number in range(12)]
    parts = [held(index, 1 + index % 3, owner=name) for name in names for index in range(3)]
    result = fleet(
        5, *parts, held(9, 5, owner="o"), placements={**{name: [1, 2, 3] for name in names}, "o": [5], "full": [4]},
        sold={**dict.fromkeys(names, (300, 3)), "full": (10, 1)},
        limits={**dict.fromkeys((1, 2, 3, 5), (2_000, 100)), 4: (10, 1)},
    )  # fmt: skip
    plan = balance_plan(result, moves_max=MOVES_MAX)
    assert {id for change in plan.placement_changes for id in change.arriving} == {5}


def test_an_even_fleet_has_nothing_to_move() -> None:
    parts = [held(index, 1 + index % 3, 1 + (index + 1) % 3) for index in range(9)]
    result = fleet(3, *parts, placements={"i": [1, 2, 3]})
    assert balance_plan(result, moves_max=MOVES_MAX) == RebalancePlan()


def test_a_partition_that_would_only_change_places_stays() -> None:
    """Its size equals the difference of two brokers; it would move back and forth for ever."""
    result = fleet(2, held(0, 2, size_bytes=7), held(1, 1, 2, size_bytes=34), placements={"i": [1, 2]})
    assert balance_plan(result, moves_max=MOVES_MAX) == RebalancePlan()


# --- any fleet --------------------------------------------------------------------------------------------------------


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    count = draw(st.integers(1, 6))
    ids = list(range(1, count + 1))
    racks = [draw(st.sampled_from(["", "a", "b", "c"])) for _ in ids]
    closed = draw(st.sets(st.sampled_from(ids), max_size=1))
    placements = {
        f"i{number}": draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        for number in range(draw(st.integers(0, 4)))
    }
    parts = []
    for number in range(draw(st.integers(0, 12))):
        owner = draw(st.sampled_from([None, *placements]))
        places = ids if owner is None else placements[owner]
        replicas = draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True))
        is_pinned = owner is None and draw(st.booleans())
        size_bytes = draw(st.integers(0, 1_000))
        parts.append(held(number, *replicas, owner=owner, size_bytes=size_bytes, pinned=is_pinned))
    return fleet(
        count, *parts, placements=placements, racks=racks, closed=sorted(closed), placements_min=draw(st.integers(1, 4))
    )


def oversold(found: Fleet, plan: RebalancePlan) -> list[int]:
    """Returns the brokers that sell more than they can and more than before."""
    placements = dict(found.placements)
    for change in plan.placement_changes:
        placements[change.owner] = (placements[change.owner] | frozenset(change.arriving)) - frozenset(change.leaving)

    def sold(is_placed_on: Mapping[str, frozenset[int]], id: int) -> list[Fraction]:
        living = [
            (found.sold[owner], len(at)) for owner, at in is_placed_on.items() if id in at and owner in found.sold
        ]
        return [sum((Fraction(size[unit], count) for size, count in living), Fraction()) for unit in (0, 1)]

    return [
        id
        for id, broker in found.brokers.items()
        if broker.can_sell is not None
        and any(
            then > limit and then > now
            for now, then, limit in zip(sold(found.placements, id), sold(placements, id), broker.can_sell, strict=True)
        )
    ]


def rack_count(found: Fleet, replicas: Sequence[int]) -> int:
    return len({found.brokers[id].rack or f"alone-{id}" for id in replicas})


def check(found: Fleet, plan: RebalancePlan) -> None:
    """Asserts the properties of every plan."""
    before = {partition.key: partition for partition in found.partitions}
    placements = {owner: set(brokers) for owner, brokers in found.placements.items()}
    for change in plan.placement_changes:
        assert not set(change.arriving) & placements[change.owner]
        placements[change.owner] = (placements[change.owner] | set(change.arriving)) - set(change.leaving)
        assert placements[change.owner], "an instance without a home"
    assert len({reassignment.key for reassignment in plan.moves}) == len(plan.moves)
    for reassignment in plan.moves:
        partition = before[reassignment.key]
        assert reassignment.before == partition.replicas != reassignment.target
        assert len(set(reassignment.target)) == len(reassignment.target)
        assert all(found.brokers[id].accepts_replicas for id in reassignment.adding)
        if partition.owner is not None:
            assert set(reassignment.target) <= placements[partition.owner]
        if partition.pinned:
            assert reassignment.target[0] == reassignment.before[0]
            assert len(reassignment.target) >= len(reassignment.before)
        else:
            assert len(reassignment.target) == len(reassignment.before)
    if plan.obstacles:
        assert not plan.moves and not plan.placement_changes


@settings(max_examples=40)
@given(fleets(), st.data())
def test_a_drain_leaves_nothing_behind_or_says_what_has_no_place(found: Fleet, data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(sorted(found.brokers)))
    plan = drain_plan(found, broker)
    check(found, plan)
    assert plan == drain_plan(found, broker)
    assert not any(broker in reassignment.adding for reassignment in plan.moves)
    if not plan.obstacles:
        targets = {reassignment.key: reassignment.target for reassignment in plan.moves}
        left = [partition for partition in found.partitions if broker in targets.get(partition.key, partition.replicas)]
        assert all(
            partition.pinned and targets.get(partition.key, partition.replicas)[0] == broker for partition in left
        )
        assert all(broker not in partition.arriving for partition in plan.placement_changes)


@settings(max_examples=40)
@given(fleets(), st.integers(0, 30))
def test_levelling_never_makes_brokers_less_even_or_costs_a_rack(found: Fleet, moves_max: int) -> None:
    plan = balance_plan(found, moves_max=moves_max)
    check(found, plan)
    assert len(plan.moves) <= moves_max
    assert not plan.obstacles
    for reassignment in plan.moves:
        assert rack_count(found, reassignment.target) >= rack_count(found, reassignment.before)
    mean = sum(partition.size_bytes for partition in found.partitions) / max(1, len(found.partitions))

    def unevenness(moves: Sequence[Reassignment]) -> float:
        """Returns the planner's sum of squared loads."""
        targets = {reassignment.key: reassignment.target for reassignment in moves}
        load = dict.fromkeys(found.brokers, 0.0)
        for partition in found.partitions:
            for id in targets.get(partition.key, partition.replicas):
                load[id] += 1 + (partition.size_bytes / mean if mean else 0.0)
        return sum(value * value for value in load.values())

    spreads = any(
        rack_count(found, reassignment.target) > rack_count(found, reassignment.before) for reassignment in plan.moves
    )
    assert spreads or unevenness(plan.moves) <= unevenness(()) + 1e-6


@settings(max_examples=60)
@given(fleets(), st.data())
def test_no_rack_keeps_two_replicas_while_a_broker_of_another_one_takes_one(found: Fleet, data: st.DataObject) -> None:
    """After levelling all partitions, and after emptying a broker those that were on it."""
    plan = balance_plan(found, moves_max=MOVES_MAX)
    targets = {reassignment.key: reassignment.target for reassignment in plan.moves}
    taking = [id for id, broker in found.brokers.items() if broker.accepts_replicas]
    for partition in found.partitions:
        replicas = targets.get(partition.key, partition.replicas)
        if not partition.pinned:
            assert is_spread(found, replicas, taking)
    broker = data.draw(st.sampled_from(sorted(found.brokers)))
    plan = drain_plan(found, broker)
    placements = {owner: set(brokers) for owner, brokers in found.placements.items()}
    for change in plan.placement_changes:
        placements[change.owner] = (placements[change.owner] | set(change.arriving)) - set(change.leaving)
    for reassignment in plan.moves:
        owner = next(partition.owner for partition in found.partitions if partition.key == reassignment.key)
        holders = set(taking) - {broker} if owner is None else placements[owner] & set(taking) - {broker}
        (arriving,) = reassignment.adding or (None,)
        kept = [replica for replica in reassignment.target if replica != arriving]
        best = max((rack_count(found, [*kept, id]) for id in holders - set(kept)), default=0)
        assert arriving is None or rack_count(found, reassignment.target) == best


def is_spread(found: Fleet, replicas: Sequence[int], taking: Sequence[int]) -> bool:
    racks = rack_count(found, replicas)
    is_shared = any(rack_count(found, [other for other in replicas if other != id]) == racks for id in replicas)
    return not is_shared or all(rack_count(found, [*replicas, id]) == racks for id in taking)


def test_levelling_spreads_a_topic_over_zones_that_came_later_and_keeps_its_leader() -> None:
    """All partitions were in zone a. Broker 4 in b is new to the instance, so it gets a placement there."""
    parts = [held(index, 1 + index % 3, 1 + (index + 1) % 3) for index in range(6)]
    found = fleet(4, *parts, placements={"i": [1, 2, 3]}, racks=["a", "a", "a", "b"])
    plan = balance_plan(found, moves_max=MOVES_MAX)
    assert [change.arriving for change in plan.placement_changes] == [(4,)]
    targets = {reassignment.key: reassignment.target for reassignment in plan.moves}
    assert all(4 in targets[partition.key] for partition in parts)
    full = replace(found, sold={"i": (9, 9)}, brokers={**found.brokers, 4: replace(found.brokers[4], can_sell=(1, 1))})
    assert not balance_plan(full, moves_max=MOVES_MAX).placement_changes, "broker 4 has no room"


def test_an_instance_that_loses_a_placement_gets_one_in_a_zone_where_it_has_none() -> None:
    found = fleet(5, placements={"i": [1, 2, 3]}, racks=["a", "b", "c", "a", "c"])
    crowded = replace(found, partitions=[held(index, 5, owner=None) for index in range(9)])
    plan = drain_plan(crowded, 3)
    assert [change.arriving for change in plan.placement_changes] == [(5,)], "fuller than 4, and alone in its zone"


@settings(max_examples=60)
@given(fleets(), st.data())
def test_levelling_never_sells_what_a_broker_has_not(found: Fleet, data: st.DataObject) -> None:
    amounts = st.tuples(st.integers(0, 20), st.integers(0, 20))
    sold = {owner: data.draw(amounts) for owner in found.placements}
    brokers = {id: replace(item, can_sell=data.draw(amounts)) for id, item in found.brokers.items()}
    found = replace(found, sold=sold, brokers=brokers)
    plan = balance_plan(found, moves_max=MOVES_MAX)
    check(found, plan)
    assert oversold(found, plan) == []


def test_a_further_placement_is_sold_as_if_the_others_were_of_no_use() -> None:
    """Broker 4 becomes an additional placement of `i1`, and moves to it go to another broker in the end."""
    sizes = {"i0": (0, 0, 0, 0), "i1": (4, 329, 85), "i2": (93, 299, 252, 0)}
    placements = {"i0": [2], "i1": [2], "i2": [3]}
    parts = [
        held(10 * at + number, *placements[owner], owner=owner, size_bytes=size_bytes)
        for at, owner in enumerate(sizes)
        for number, size_bytes in enumerate(sizes[owner])
    ]
    result = fleet(
        6, *parts, held(99, 1, owner=None, size_bytes=59), placements=placements, sold={"i1": (12, 0), "i2": (4, 0)},
        limits={1: (3, 0), 2: (0, 0), 3: (5, 0), 4: (6, 0), 5: (2, 0), 6: (5, 0)},
    )  # fmt: skip
    plan = balance_plan(result, moves_max=MOVES_MAX)
    check(result, plan)
    assert plan.placement_changes
    assert oversold(result, plan) == []


@settings(max_examples=25)
@given(fleets(), st.integers(1, 3), st.integers(1, 10), st.data())
def test_moves_are_bounded_at_every_moment_and_all_get_their_turn(
    found: Fleet, per_broker_max: int, begin_max: int, data: st.DataObject
) -> None:
    waiting = list(drain_plan(found, 1).moves)
    running: list[Reassignment] = []
    while waiting or running:
        begun = next_reassignments(waiting, running, per_broker_max=per_broker_max, begin_max=begin_max)
        assert begun or running, "moves wait and nothing runs"
        assert len(begun) <= begin_max
        waiting = [reassignment for reassignment in waiting if reassignment not in begun]
        running += begun
        for id in found.brokers:
            assert sum(id in reassignment.adding for reassignment in running) <= per_broker_max
            assert (
                sum(reassignment.before[0] == id for reassignment in running if reassignment.adding) <= per_broker_max
            )
        done = data.draw(st.integers(1, len(running)))
        running = running[done:]


def test_the_way_back_of_a_move_is_a_move() -> None:
    reassignment = Reassignment(topic="t", index=0, before=(1, 2), target=(2, 3), size_bytes=7)
    assert (reassignment.adding, reassignment.removing, reassignment.copied_bytes) == ((3,), (1,), 7)
    assert reassignment.reversed().reversed() == reassignment
    assert reassignment.reversed().adding == (1,)
