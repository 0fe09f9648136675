"""Tenants at one event loop at random, and that the simulator finds what was planted (`scheduling.planted`)."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.chunks import chunk_id, chunks, run_seeds, seeds_wanted
from tests.simulation.scheduling.planted import PLANTED

FIRST_SEED, SEEDS = seeds_wanted("PENSTOCK_SCHEDULING_SEEDS", short=20, long=400, first_seed=20_000)
PLANTED_SEEDS_MAX = 100


@pytest.mark.parametrize("chunk", chunks(FIRST_SEED, SEEDS), ids=chunk_id)
def test_each_tenant_has_its_part_of_the_loop_whatever_the_others_do(
    chunk: range, capsys: pytest.CaptureFixture[str]
) -> None:
    run_seeds("scheduling", chunk, capsys)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_the_scheduler_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError) as failure:
        for seed in range(PLANTED_SEEDS_MAX):
            simulate("scheduling", seed, STEPS_OF_RUN["scheduling"])
    assert failure.value.__notes__[0].startswith("scheduling, seed ")
