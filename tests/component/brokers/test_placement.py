"""Placement (CKA-47) as tables, and properties that hold for any fleet."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.placement.placement import (
    BrokerRoom,
    ClusterRoom,
    brokers_for,
    choose,
    largest_bandwidth_mb_s,
    largest_storage_gb,
    missing,
)

PLENTY = 1_000_000


def cluster(name: str, *free: float, brokers_min: int = 3, storage: int = PLENTY) -> ClusterRoom:
    rooms = tuple(
        BrokerRoom(
            id=f"{name}-{number}", number=number, free_bandwidth_mb_s=Fraction(mb_s), free_storage_gb=Fraction(storage)
        )
        for number, mb_s in enumerate(free, 1)
    )
    return ClusterRoom(id=name, brokers=rooms, brokers_min=brokers_min)


def test_the_fullest_cluster_where_it_fits_is_chosen() -> None:
    """CKA-47's table: free (100, 50, 80), need 60 → the third; need 120 → none."""
    clusters = [cluster("a", 100.0), cluster("b", 50.0), cluster("c", 80.0)]
    chosen = choose(clusters, bandwidth_mb_s=60, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "c"
    assert choose(clusters, bandwidth_mb_s=120, storage_gb=1) is None


def test_equal_clusters_are_told_apart_by_id() -> None:
    chosen = choose([cluster("b", 100.0), cluster("a", 100.0)], bandwidth_mb_s=60, storage_gb=1)
    assert chosen is not None
    assert chosen.cluster_id == "a"


def test_an_instance_lives_on_the_brokers_with_most_room_but_at_least_three() -> None:
    result = brokers_for(cluster("a", 10.0, 40.0, 30.0, 20.0, 5.0), bandwidth_mb_s=6, storage_gb=1)
    assert [broker.number for broker in result] == [2, 3, 4]


def test_a_small_cluster_is_used_whole() -> None:
    result = brokers_for(cluster("a", 10.0, 10.0), bandwidth_mb_s=6, storage_gb=1)
    assert [broker.number for broker in result] == [1, 2]


def test_more_brokers_are_taken_when_a_third_is_too_much_for_one() -> None:
    result = brokers_for(cluster("a", *[100.0] * 6), bandwidth_mb_s=500, storage_gb=1)
    assert len(result) == 5


def test_two_thousand_fit_three_brokers_of_a_thousand_and_not_a_second_time() -> None:
    assert choose([cluster("a", 1000.0, 1000.0, 1000.0)], bandwidth_mb_s=2000, storage_gb=1) is not None
    assert choose([cluster("a", 333.0, 333.0, 333.0)], bandwidth_mb_s=2000, storage_gb=1) is None


def test_storage_counts_as_much_as_bandwidth() -> None:
    assert choose([cluster("a", 100.0, storage=5, brokers_min=1)], bandwidth_mb_s=1, storage_gb=6) is None


def test_a_full_broker_is_passed_over() -> None:
    result = brokers_for(cluster("a", 0.0, 100.0, 100.0, 100.0), bandwidth_mb_s=30, storage_gb=1)
    assert [broker.number for broker in result] == [2, 3, 4]


def test_no_cluster_or_no_broker_is_no_place() -> None:
    assert choose([], bandwidth_mb_s=1, storage_gb=1) is None
    assert choose([cluster("a")], bandwidth_mb_s=1, storage_gb=1) is None
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
def test_a_refusal_names_what_is_missing(clusters: list[ClusterRoom], lacks: tuple[str, ...]) -> None:
    assert missing(clusters, bandwidth_mb_s=100, storage_gb=100) == lacks


def test_the_largest_storage_that_fits_is_named() -> None:
    clusters = [cluster("a", 500.0, 500.0, 500.0, storage=5), cluster("b", 1.0, storage=900)]
    assert largest_storage_gb(clusters, bandwidth_mb_s=100) == 15
    assert largest_storage_gb([], bandwidth_mb_s=1) == 0


fleets = st.lists(st.lists(st.floats(-50, 2_000, allow_nan=False), max_size=6), max_size=4).map(
    lambda rooms: [cluster(f"c{index}", *free) for index, free in enumerate(rooms)]
)


@given(fleets, st.integers(1, 4_000))
def test_a_chosen_broker_always_has_room_for_its_share(clusters: list[ClusterRoom], bandwidth_mb_s: int) -> None:
    chosen = choose(clusters, bandwidth_mb_s=bandwidth_mb_s, storage_gb=1)
    if chosen is None:
        return
    home = next(item for item in clusters if item.id == chosen.cluster_id)
    share = Fraction(bandwidth_mb_s, len(chosen.broker_ids))
    rooms = {broker.id: broker for broker in home.brokers}
    assert all(rooms[broker_id].free_bandwidth_mb_s >= share for broker_id in chosen.broker_ids)
    assert len(chosen.broker_ids) >= min(3, len(home.brokers))


@given(fleets)
def test_what_a_refusal_names_as_fitting_fits_and_one_more_does_not(clusters: list[ClusterRoom]) -> None:
    largest = largest_bandwidth_mb_s(clusters, storage_gb=1)
    if largest:
        assert choose(clusters, bandwidth_mb_s=largest, storage_gb=1) is not None
    assert choose(clusters, bandwidth_mb_s=largest + 1, storage_gb=1) is None


@given(fleets, st.integers(1, 4_000))
def test_the_order_in_which_clusters_are_told_changes_nothing(clusters: list[ClusterRoom], mb_s: int) -> None:
    forwards = choose(clusters, bandwidth_mb_s=mb_s, storage_gb=1)
    assert forwards == choose(clusters[::-1], bandwidth_mb_s=mb_s, storage_gb=1)
