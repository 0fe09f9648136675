"""The simulation of shares: it repeats, and the default policy keeps its promises in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks import sharing, sharing_plot, sharing_scenarios
from benchmarks.sharing_world import Scenario, World
from quotas.policies import DEFAULT_POLICY, Policy

SEED = 7


def ran(scenario: Scenario, policy: Policy = DEFAULT_POLICY, seed: int = SEED) -> World:
    world = World(scenario, policy, seed)
    world.run()
    return world


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = (ran(sharing_scenarios.moving(SEED)) for _ in range(2))

    assert sharing.admitted_bytes(first) == sharing.admitted_bytes(second)
    assert first.shares == second.shares


@pytest.mark.parametrize("seed", range(3))
def test_one_hot_partition_uses_what_was_bought(seed: int) -> None:
    """From the third second on after it became hot."""
    world = ran(sharing_scenarios.hot(), seed=seed)
    since = sharing_scenarios.HOT_AT_MS // sharing.STEP_MS + 3 * sharing.SECOND
    steps = sharing.admitted_bytes(world)[since:]

    assert sum(steps) >= 0.95 * world.scenario.bought_bps * len(steps) * sharing.STEP_MS / 1000
    assert sharing.overshoot(world) <= 1.02


def test_the_static_parts_leave_two_thirds_of_it_unused() -> None:
    figures = sharing.figures(ran(sharing_scenarios.hot(), "static"))

    assert figures["utilisation"] < 0.4
    assert figures["converged_s"] is None


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_of_shares_is_what_was_bought_in_every_interval(seed: int) -> None:
    for scenario in (sharing_scenarios.bursty(seed), sharing_scenarios.noisy(seed)):
        world = ran(scenario, "normalised", seed)

        assert all(sum(shares) == scenario.bought_bps for shares in world.shares)
        assert all(min(shares) > 0 for shares in world.shares)


@pytest.mark.parametrize("seed", range(3))
def test_pooled_bandwidth_is_used_where_it_is_in_demand_and_never_exceeded(seed: int) -> None:
    for scenario in (sharing_scenarios.moving(seed), sharing_scenarios.bursty(seed), sharing_scenarios.noisy(seed)):
        world = ran(scenario, seed=seed)

        assert sharing.figures(world)["utilisation"] >= 0.98
        assert sharing.overshoot(world) <= 1.02


def test_a_fair_part_is_everybodys_wish_up_to_one_level() -> None:
    assert sharing.fair_shares(90, (1, 1, 1), (60, 10, 50)) == [40, 10, 40]
    assert sharing.fair_shares(90, (2, 1, 1), (90, 90, 5)) == pytest.approx([56.67, 28.33, 5], abs=0.01)


def test_the_drawing_is_well_formed() -> None:
    rows = [{"scenario": "one hot partition", "policy": "adaptive", "utilisation": 0.98}]
    drawing = sharing_plot.svg(rows, {"adaptive": [19_000_000] * 60}, 20_000_000)

    assert ET.fromstring(drawing).tag.endswith("svg")
