"""Mutation tests of the simulator itself: each mistake of `cluster.planted` is found, and within 500 seeds."""

from __future__ import annotations

import pytest

from tests.simulate.__main__ import STEPS_OF_RUN, simulate
from tests.simulate.cluster.planted import PLANTED

SEEDS_MAX = 500
# From here on the rarest of them comes soon.
FIRST_SEED = 24


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError) as failure:
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_MAX):
            simulate("cluster", seed, STEPS_OF_RUN["cluster"])
    assert failure.value.__notes__[0].startswith("cluster, seed ")
