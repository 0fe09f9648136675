"""Simulated storage of instances: the stored bytes never exceed the bought ones, and shortening leaves enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokers.engine.capacity import shortening
from brokers.engine.capacity.ledger import StorageLedger
from brokers.engine.capacity.shortening import StorageFigures
from tests.simulation.capacity.world import Broken, World, run
from tests.testkit import depth

STEPS = 3_000
SEEDS = depth.number_from("PENSTOCK_CAPACITY_SEEDS", short=12, long=100)
PLANTED_SEEDS = 60


@pytest.mark.parametrize("seed", range(depth.SEED, depth.SEED + SEEDS))
def test_storage_of_a_seed_keeps_its_promises(seed: int) -> None:
    run(seed, STEPS).finish()


def test_simulated_instances_are_filled_and_shortened() -> None:
    """Otherwise the runs would not test the promises."""
    worlds = [run(seed, STEPS) for seed in range(6)]
    instances = [instance for world in worlds for instance in world.instances]

    assert any(instance.refused for instance in instances)
    assert any(instance.stored_bytes > instance.bought_bytes * 0.85 for instance in instances if instance.shrinks)


def grants_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Allocates a tenth more than the budget."""
    update = StorageLedger._compute_delta_bytes

    def planted(self: StorageLedger, account, line, free_bytes, budget_bytes):  # type: ignore[no-untyped-def]
        return update(self, account, line, free_bytes, budget_bytes + budget_bytes // 10)

    patch.setattr(StorageLedger, "_compute_delta_bytes", planted)


def moves_are_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    """Applies a decrease of use before the other brokers have reported."""
    patch.setattr(StorageLedger, "_counted_use_bytes", lambda _self, _account, _broker_id, share: share.used_bytes)


def freed_bytes_are_freed_again(patch: pytest.MonkeyPatch) -> None:
    """Ignores bytes that were freed since the controller's answer."""
    excess = shortening.excess_bytes

    def planted(figures: StorageFigures) -> int:
        return excess(figures._replace(local_log_bytes=figures.counted_bytes))

    patch.setattr(shortening, "excess_bytes", planted)


def floor_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    choose = shortening.segments_to_delete
    patch.setattr(shortening, "segments_to_delete", lambda *logs, **more: choose(*logs, **(more | {"age_ms_min": 0})))


def every_broker_frees_all(patch: pytest.MonkeyPatch) -> None:
    """Makes every broker free the whole excess instead of its part."""
    patch.setattr(
        shortening,
        "excess_bytes",
        lambda figures: max(0, figures.reported_bytes - figures.bought_bytes * shortening.RELEASE_PERCENT // 100),
    )


def moves_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Does not wait after a leader change, when two brokers count the same partition."""
    patch.setattr(World, "moved_ms", 0)


@pytest.mark.long("tests/simulation", "tests/testkit/depth.py", "brokers/engine/capacity")
@pytest.mark.parametrize(
    "plant",
    [
        grants_are_forgotten,
        moves_are_believed_at_once,
        freed_bytes_are_freed_again,
        floor_is_forgotten,
        every_broker_frees_all,
        moves_are_not_waited_for,
    ],
)
def test_planted_mistake_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    with pytest.raises(Broken):
        for seed in range(PLANTED_SEEDS):
            run(seed, STEPS)
