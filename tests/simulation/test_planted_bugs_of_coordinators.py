"""Mutation tests of the simulator itself: each mistake of `coordinators.planted` is found, and within 200 seeds."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.cluster.faults import WEIGHTS
from tests.simulation.coordinators.faults import CLIENT_WEIGHTS
from tests.simulation.coordinators.planted import PLANTED

SEEDS_MAX = 200
# First seed that finds each mistake; PENSTOCK_PLANTED_FROM=0 searches again from 0, which takes long.
FIRST_SEEDS: Final = {
    "reply_before_commit": 7,
    "forget_pending_offsets": 26,
    "take_markers_of_zombies": 5,
    "ignore_generation": 8,
    "tell_unconfirmed_positions": 28,
}
# Changed weights for mistakes that need rare events: more of these events, and fewer that end their effect.
LEANINGS: Final = {
    "take_markers_of_zombies": {
        "pause": 16,
        "session_expiry": 12,
        "one_way_partition": 15,
        "compaction": 0,
        "power_cut": 0,
        "fsync_error": 0,
    },
    "tell_unconfirmed_positions": {
        "one_way_partition": 25,
        "session_expiry": 12,
        "mend": 8,
        "crash": 1,
        "torn_write": 0,
        "compaction": 0,
        "power_cut": 0,
        "fsync_error": 0,
        "clock_jump": 0,
        "producer_dies": 0,
    },
}


@pytest.mark.long("tests/simulation", "tests/testkit/depth.py")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_coordinators_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = int(os.environ.get("PENSTOCK_PLANTED_FROM", FIRST_SEEDS.get(name, 0)))
    PLANTED[name](monkeypatch)
    for verb, weight in LEANINGS.get(name, {}).items():
        monkeypatch.setitem(WEIGHTS if verb in WEIGHTS else CLIENT_WEIGHTS, verb, weight)
    with pytest.raises(AssertionError) as failure:
        for seed in range(first, first + SEEDS_MAX):
            simulate("coordinators", seed, STEPS_OF_RUN["coordinators"])
    assert failure.value.__notes__[0].startswith("coordinators, seed ")
