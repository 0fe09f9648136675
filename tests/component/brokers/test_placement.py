"""Placement (CKA-47): tables of examples, and properties for any fleet."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.placement.dedicated import FreeHost, plan_cluster
from brokers.placement.placement import (
    BrokerHeadroom,
    ClusterHeadroom,
    Fit,
    choose_cluster,
    cluster_fits,
    fewest_brokers,
    largest_bandwidth_mb_s,
    largest_storage_gb,
    missing_kinds_of,
)

PLENTY = 1_000_000


def cluster(name: str, *free: float, brokers_min: int = 3, storage: int = PLENTY) -> ClusterHeadroom:
    rooms = tuple(
        BrokerHeadroom(
            id=f"{name}-{number}", number=number, free_bandwidth_mb_s=Fraction(mb_s), free_storage_gb=Fraction(storage)
        )
        for number, mb_s in enumerate(free, 1)
    )
    return ClusterHeadroom(id=name, brokers=rooms, brokers_min=brokers_min)


def test_the_fullest_cluster_where_it_fits_is_chosen() -> None:
    """CKA-47's table: free (100, 50, 80), need 60 → the third; need 120 → none."""
    clusters = [cluster("a", 100.0), cluster("b", 50.0), cluster("c", 80.0)]
    chosen = choose_cluster(clusters, bandwidth_mb_s=60, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "c"
    assert choose_cluster(clusters, bandwidth_mb_s=120, storage_gb=1) is None


def test_the_lower_id_decides_between_equal_clusters() -> None:
    chosen = choose_cluster([cluster("b", 100.0), cluster("a", 100.0)], bandwidth_mb_s=60, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "a"


def test_an_instance_lives_on_the_brokers_with_most_room_but_at_least_three() -> None:
    result = fewest_brokers(cluster("a", 10.0, 40.0, 30.0, 20.0, 5.0), bandwidth_mb_s=6, storage_gb=1)
    assert [broker.number for broker in result] == [2, 3, 4]


def test_a_small_cluster_is_used_whole() -> None:
    result = fewest_brokers(cluster("a", 10.0, 10.0), bandwidth_mb_s=6, storage_gb=1)
    assert [broker.number for broker in result] == [1, 2]


def test_more_brokers_are_taken_when_a_third_is_too_much_for_one() -> None:
    result = fewest_brokers(cluster("a", *[100.0] * 6), bandwidth_mb_s=500, storage_gb=1)
    assert len(result) == 5


def test_two_thousand_fit_three_brokers_of_a_thousand_and_not_a_second_time() -> None:
    assert choose_cluster([cluster("a", 1000.0, 1000.0, 1000.0)], bandwidth_mb_s=2000, storage_gb=1) is not None
    assert choose_cluster([cluster("a", 333.0, 333.0, 333.0)], bandwidth_mb_s=2000, storage_gb=1) is None


def test_storage_counts_as_much_as_bandwidth() -> None:
    assert choose_cluster([cluster("a", 100.0, storage=5, brokers_min=1)], bandwidth_mb_s=1, storage_gb=6) is None


def test_a_full_broker_is_passed_over() -> None:
    result = fewest_brokers(cluster("a", 0.0, 100.0, 100.0, 100.0), bandwidth_mb_s=30, storage_gb=1)
    assert [broker.number for broker in result] == [2, 3, 4]


def test_no_cluster_or_no_broker_is_no_place() -> None:
    assert choose_cluster([], bandwidth_mb_s=1, storage_gb=1) is None
    assert choose_cluster([cluster("a")], bandwidth_mb_s=1, storage_gb=1) is None
    assert largest_bandwidth_mb_s([], storage_gb=1) == 0


@pytest.mark.parametrize(
    ("clusters", "lacks"),
    [
        ([], ("cluster",)),
        ([cluster("a"), cluster("b")], ("broker",)),
        ([cluster("a", 10.0, 10.0), cluster("b", 20.0)], ("bandwidth",)),
        ([cluster("a", 500.0, 500.0, 500.0, storage=5)], ("storage",)),
        ([cluster("a", 5.0, storage=5)], ("bandwidth", "storage")),
        ([cluster("a", 10.0), cluster("b", 500.0, storage=5)], ("both",)),
    ],
)
def test_a_refusal_names_what_is_missing(clusters: list[ClusterHeadroom], lacks: tuple[str, ...]) -> None:
    assert missing_kinds_of(clusters, bandwidth_mb_s=100, storage_gb=100) == lacks


def test_the_largest_storage_that_fits_is_named() -> None:
    clusters = [cluster("a", 500.0, 500.0, 500.0, storage=5), cluster("b", 1.0, storage=900)]
    assert largest_storage_gb(clusters, bandwidth_mb_s=100) == 15
    assert largest_storage_gb([], bandwidth_mb_s=1) == 0


fleets = st.lists(st.lists(st.floats(-50, 2_000, allow_nan=False), max_size=6), max_size=4).map(
    lambda rooms: [cluster(f"c{index}", *free) for index, free in enumerate(rooms)]
)


@given(fleets, st.integers(1, 4_000))
def test_a_chosen_broker_always_has_room_for_its_share(clusters: list[ClusterHeadroom], bandwidth_mb_s: int) -> None:
    chosen = choose_cluster(clusters, bandwidth_mb_s=bandwidth_mb_s, storage_gb=1)
    if chosen is None:
        return
    home = next(item for item in clusters if item.id == chosen.cluster_id)
    share = Fraction(bandwidth_mb_s, len(chosen.broker_ids))
    rooms = {broker.id: broker for broker in home.brokers}
    assert all(rooms[broker_id].free_bandwidth_mb_s >= share for broker_id in chosen.broker_ids)
    assert len(chosen.broker_ids) >= min(3, len(home.brokers))


@given(fleets)
def test_the_size_a_refusal_names_fits_and_one_more_does_not(clusters: list[ClusterHeadroom]) -> None:
    largest = largest_bandwidth_mb_s(clusters, storage_gb=1)
    if largest:
        assert choose_cluster(clusters, bandwidth_mb_s=largest, storage_gb=1) is not None
    assert choose_cluster(clusters, bandwidth_mb_s=largest + 1, storage_gb=1) is None


@given(fleets, st.integers(1, 4_000))
def test_the_order_of_clusters_changes_nothing(clusters: list[ClusterHeadroom], mb_s: int) -> None:
    forwards = choose_cluster(clusters, bandwidth_mb_s=mb_s, storage_gb=1)
    assert forwards == choose_cluster(clusters[::-1], bandwidth_mb_s=mb_s, storage_gb=1)


rooms = st.lists(
    st.builds(
        ClusterHeadroom,
        id=st.text("abc", min_size=1, max_size=3),
        brokers_min=st.integers(1, 4),
        free_partitions=st.none() | st.integers(-50, 500),
        unsold_mb_s=st.none() | st.integers(-50, 1_000),
        unsold_gb=st.none() | st.integers(-50, 1_000),
        own_instances=st.integers(0, 3),
        brokers=st.lists(
            st.builds(
                BrokerHeadroom,
                id=st.uuids().map(str),
                number=st.integers(1, 40),
                free_bandwidth_mb_s=st.integers(-100, 1_000).map(Fraction),
                free_storage_gb=st.integers(-100, 1_000).map(Fraction),
                is_healthy=st.booleans(),
                zone=st.sampled_from(("", "a", "b")),
            ),
            max_size=5,
        ).map(tuple),
    ),
    max_size=6,
    unique_by=lambda item: item.id,
)


@given(clusters=rooms, mb_s=st.integers(1, 2_000), gb=st.integers(1, 2_000), partitions=st.integers(1, 400))
def test_nothing_is_sold_twice_and_a_refusal_is_never_wrong(
    clusters: list[ClusterHeadroom], mb_s: int, gb: int, partitions: int
) -> None:
    chosen = choose_cluster(clusters, bandwidth_mb_s=mb_s, storage_gb=gb, partitions=partitions)
    found = cluster_fits(clusters, bandwidth_mb_s=mb_s, storage_gb=gb, partitions=partitions)
    assert {item.cluster_id for item in found} == {item.id for item in clusters}
    fits = [item.cluster_id for item in found if item.fit in (Fit.CHOSEN, Fit.FITS)]
    if chosen is None:
        assert fits == []
        assert missing_kinds_of(clusters, bandwidth_mb_s=mb_s, storage_gb=gb, partitions=partitions)
        return
    assert found[0].cluster_id == chosen.cluster_id == fits[0]
    cluster = next(item for item in clusters if item.id == chosen.cluster_id)
    brokers = [broker for broker in cluster.brokers if broker.id in chosen.broker_ids]
    count = len(chosen.broker_ids)
    assert cluster.free_partitions is None or cluster.free_partitions >= partitions
    assert cluster.unsold_mb_s is None or cluster.unsold_mb_s >= mb_s
    assert cluster.unsold_gb is None or cluster.unsold_gb >= gb
    assert any(broker.is_healthy for broker in cluster.brokers)
    assert count >= min(cluster.brokers_min, len(cluster.brokers))
    for broker in brokers:
        assert broker.free_bandwidth_mb_s * count >= mb_s
        assert broker.free_storage_gb * count >= gb
    others = [item for item in clusters if item.id in fits]
    assert cluster.own_instances == min(item.own_instances for item in others)


def test_instances_of_a_tenant_are_spread_before_gaps_are_filled() -> None:
    clusters = [replace(cluster("a", 70.0), own_instances=1), cluster("b", 500.0), cluster("c", 300.0)]
    chosen = choose_cluster(clusters, bandwidth_mb_s=60, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "c"


def test_a_cluster_whose_brokers_are_silent_is_passed_over() -> None:
    dead = cluster("a", 100.0, 100.0, 100.0)
    dead = replace(dead, brokers=tuple(replace(broker, is_healthy=False) for broker in dead.brokers))
    alive = cluster("b", 900.0, 900.0, 900.0)
    assert choose_cluster([dead], bandwidth_mb_s=6, storage_gb=1) is None
    assert missing_kinds_of([dead], bandwidth_mb_s=6, storage_gb=1) == ("broker",)
    chosen = choose_cluster([dead, alive], bandwidth_mb_s=6, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "b"


def test_a_silent_broker_is_taken_only_where_the_others_are_too_few() -> None:
    four = cluster("a", 100.0, 100.0, 100.0, 500.0)
    four = replace(four, brokers=(*four.brokers[:3], replace(four.brokers[3], is_healthy=False)))
    result = fewest_brokers(four, bandwidth_mb_s=6, storage_gb=1)
    assert [broker.number for broker in result] == [1, 2, 3]
    three = replace(four, brokers=four.brokers[1:])
    assert [broker.number for broker in fewest_brokers(three, bandwidth_mb_s=6, storage_gb=1)] == [2, 3, 4]


def in_zones(found: ClusterHeadroom, *zones: str) -> ClusterHeadroom:
    rooms = zip(found.brokers, zones, strict=True)
    return replace(found, brokers=tuple(replace(broker, zone=zone) for broker, zone in rooms))


def test_an_instance_lives_in_as_many_zones_as_have_room_for_it() -> None:
    six = in_zones(cluster("a", 60.0, 50.0, 40.0, 30.0, 20.0, 10.0), *"aaabbc")
    size = {"bandwidth_mb_s": 6, "storage_gb": 1}
    assert [broker.number for broker in fewest_brokers(six, **size)] == [1, 4, 6]
    full = replace(six, brokers=(*six.brokers[:5], replace(six.brokers[5], free_bandwidth_mb_s=Fraction(1))))
    assert [broker.number for broker in fewest_brokers(full, **size)] == [1, 2, 4], (
        "the only broker of its zone is full"
    )


def test_brokers_without_a_zone_are_chosen_by_room_alone() -> None:
    five = cluster("a", 10.0, 40.0, 30.0, 20.0, 5.0)
    named = in_zones(five, *["only"] * 5)
    size = {"bandwidth_mb_s": 6, "storage_gb": 1}
    assert [broker.number for broker in fewest_brokers(named, **size)] == [2, 3, 4]
    assert [broker.number for broker in fewest_brokers(five, **size)] == [2, 3, 4]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abcd")), min_size=1, max_size=9),
    st.integers(1, 60),
    st.integers(1, 5),
)
def test_no_zone_gets_a_second_broker_of_an_instance_while_another_has_room(
    rooms: list[tuple[int, str]], bandwidth_mb_s: int, brokers_min: int
) -> None:
    mb_s, zones = zip(*rooms, strict=True)
    found = in_zones(cluster("a", *mb_s, brokers_min=brokers_min), *zones)
    chosen = fewest_brokers(found, bandwidth_mb_s=bandwidth_mb_s, storage_gb=1)
    share = Fraction(bandwidth_mb_s, len(chosen) or 1)
    with_room = {broker.zone for broker in found.brokers if broker.free_bandwidth_mb_s >= share}
    if chosen:
        assert len({broker.zone for broker in chosen}) == min(len(chosen), len(with_room))


def test_partitions_are_a_bound_of_their_own() -> None:
    full = replace(cluster("a", 100.0), free_partitions=49)
    assert choose_cluster([full], bandwidth_mb_s=6, storage_gb=1, partitions=50) is None
    assert missing_kinds_of([full], bandwidth_mb_s=6, storage_gb=1, partitions=50) == ("partitions",)
    assert choose_cluster([full], bandwidth_mb_s=6, storage_gb=1, partitions=49) is not None


@pytest.mark.parametrize(("bound", "lack"), [("unsold_mb_s", "bandwidth"), ("unsold_gb", "storage")])
def test_a_cluster_sells_no_more_than_it_may_whatever_its_brokers_have(bound: str, lack: str) -> None:
    """CKA-46."""
    bounded = replace(cluster("a", 100.0, 100.0, 100.0), **{bound: 9})
    assert choose_cluster([bounded], bandwidth_mb_s=9, storage_gb=9) is not None
    size = {"bandwidth_mb_s": 9, "storage_gb": 9}
    size["bandwidth_mb_s" if lack == "bandwidth" else "storage_gb"] = 10
    assert choose_cluster([bounded], **size) is None
    assert missing_kinds_of([bounded], **size) == (lack,)
    (fit,) = cluster_fits([bounded], **size)
    assert fit.fit == lack
    largest = largest_bandwidth_mb_s if lack == "bandwidth" else largest_storage_gb
    other = {"storage_gb": 9} if lack == "bandwidth" else {"bandwidth_mb_s": 9}
    assert largest([bounded], **other) == 9
    oversold = replace(bounded, **{bound: -3})
    assert choose_cluster([oversold], bandwidth_mb_s=9, storage_gb=9) is None


hosts = st.lists(
    st.builds(
        FreeHost,
        id=st.uuids().map(str),
        zone=st.sampled_from(("", "east", "west", "north")),
        capacity_mb_s=st.none() | st.integers(1, 3_000),
        capacity_gb=st.none() | st.integers(1, 3_000),
    ),
    max_size=8,
    unique_by=lambda item: item.id,
)


@given(hosts=hosts, mb_s=st.integers(1, 9_000), gb=st.integers(1, 9_000), brokers_min=st.integers(1, 4))
def test_a_cluster_of_its_own_carries_the_instance_and_no_host_sells_more_than_it_may(
    hosts: list[FreeHost], mb_s: int, gb: int, brokers_min: int
) -> None:
    size = {"bandwidth_mb_s": mb_s, "storage_gb": gb, "brokers_min": brokers_min, "brokers_max": 32}
    planned = plan_cluster(hosts, **size, broker_mb_s=1_000, broker_gb=1_000)
    if planned is None:
        return
    count = len(planned.host_ids)
    assert brokers_min <= count <= 32
    assert planned.bandwidth_mb_s * count >= mb_s
    assert planned.storage_gb * count >= gb
    known = {host.id: host for host in hosts}
    for host_id in set(planned.host_ids):
        here = planned.host_ids.count(host_id)
        host = known[host_id]
        assert host.capacity_mb_s is None or here * planned.bandwidth_mb_s <= host.capacity_mb_s
        assert host.capacity_gb is None or here * planned.storage_gb <= host.capacity_gb


def test_a_cluster_of_its_own_is_spread_over_zones() -> None:
    free = [FreeHost(id=f"h{number}", zone=zone) for number, zone in enumerate(("a", "a", "b", "c"))]
    size = {"bandwidth_mb_s": 10, "storage_gb": 10, "brokers_min": 3, "brokers_max": 32}
    planned = plan_cluster(free, **size, broker_mb_s=1_000, broker_gb=1_000)
    assert planned is not None
    assert planned.host_ids == ("h0", "h2", "h3")
    alone = plan_cluster(free[:1], **size, broker_mb_s=1_000, broker_gb=1_000)
    assert alone is not None
    assert alone.host_ids == ("h0", "h0", "h0")
    assert plan_cluster([], **size, broker_mb_s=1_000, broker_gb=1_000) is None
