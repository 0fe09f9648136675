"""Mutation tests of the simulator itself: each mistake of `coordinators.planted` is found, and within 200 seeds."""

from __future__ import annotations

import pytest

from tests.simulate.__main__ import STEPS_OF_RUN, simulate
from tests.simulate.coordinators.planted import PLANTED

SEEDS_MAX = 200


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_coordinators_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError) as failure:
        for seed in range(SEEDS_MAX):
            simulate("coordinators", seed, STEPS_OF_RUN["coordinators"])
    assert failure.value.__notes__[0].startswith("coordinators, seed ")
