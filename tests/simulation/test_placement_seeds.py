"""Simulated fleet of 50 clusters in three zones: some seeds, and mistakes that the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from brokers.engine.controller import placement as replica_placement
from brokers.placement import placement
from brokers.placement.placement import BrokerHeadroom, ClusterChoice, ClusterHeadroom
from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.chunks import chunk_id, chunks, run_seeds, seeds_wanted

STEPS = STEPS_OF_RUN["placement"]
FIRST_SEED, SEEDS = seeds_wanted("PENSTOCK_PLACEMENT_SEEDS", short=2, long=40, first_seed=1_000)
Plant = Callable[[pytest.MonkeyPatch], None]


def forget_zones(patch: pytest.MonkeyPatch) -> None:
    """Brokers of an instance are chosen by room alone."""
    patch.setattr(placement, "_zones_in_turn", list)


def sell_whole_numbers(patch: pytest.MonkeyPatch) -> None:
    """A broker with any room takes its share, however large that is."""
    patch.setattr(placement, "has_capacity", lambda broker, _mb_s, _gb: broker.free_bandwidth_mb_s > 0)


def fill_gaps_before_spreading(patch: pytest.MonkeyPatch) -> None:
    """A tenant's instances all go to the fullest cluster."""
    choose = placement.choose_cluster

    def careless(clusters: Sequence[ClusterHeadroom], **size: int) -> ClusterChoice | None:
        return choose([_without_owner(cluster) for cluster in clusters], **size)

    patch.setattr(placement, "choose_cluster", careless)


def ignore_racks(patch: pytest.MonkeyPatch) -> None:
    """Replicas are placed on brokers whatever their zones are."""

    def careless(racks: dict[int, str], **sizes: int) -> dict[int, tuple[int, ...]]:
        return replica_placement.random_shift(sorted(racks), **sizes)

    patch.setattr(replica_placement, "rack_aware", careless)


def _without_owner(cluster: ClusterHeadroom) -> ClusterHeadroom:
    brokers: tuple[BrokerHeadroom, ...] = cluster.brokers
    return ClusterHeadroom(id=cluster.id, brokers=brokers, brokers_min=cluster.brokers_min)


PLANTED: Sequence[Plant] = (forget_zones, sell_whole_numbers, fill_gaps_before_spreading, ignore_racks)


@pytest.mark.parametrize("chunk", chunks(FIRST_SEED, SEEDS), ids=chunk_id)
def test_placement_keeps_its_promises_on_fifty_clusters(chunk: range, capsys: pytest.CaptureFixture[str]) -> None:
    run_seeds("placement", chunk, capsys)


@pytest.mark.long("tests/simulation/placement", "brokers/placement", "brokers/engine/controller/placement.py")
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_of_placement_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError) as failure:
        simulate("placement", 1, STEPS)
    assert failure.value.__notes__[0].startswith("placement, seed 1")
