"""Simulated flow master: some seeds, and the mistakes of `flow.planted`, which the simulator must find."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.chunks import chunk_id, chunks, run_seeds, seeds_wanted
from tests.simulation.flow.planted import PLANTED

STEPS = STEPS_OF_RUN["flow"]
FIRST_SEED, SEEDS = seeds_wanted("PENSTOCK_FLOW_SEEDS", short=40, long=280, first_seed=10_000)
PLANTED_SEEDS_MAX = 200


@pytest.mark.parametrize("chunk", chunks(FIRST_SEED, SEEDS), ids=chunk_id)
def test_shares_keep_their_promises_whatever_goes_wrong(chunk: range, capsys: pytest.CaptureFixture[str]) -> None:
    run_seeds("flow", chunk, capsys)


@pytest.mark.long("tests/simulation", "tests/testkit/depth.py", "brokers/engine/flowmaster")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_of_the_flow_master_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError) as failure:
        for seed in range(PLANTED_SEEDS_MAX):
            simulate("flow", seed, STEPS)
    assert failure.value.__notes__[0].startswith("flow, seed ")
