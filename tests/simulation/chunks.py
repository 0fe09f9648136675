"""Chunks of seeds, which parallel test processes share, so that a failure is reported early."""

from __future__ import annotations

import os
import time

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.testkit import depth

SEEDS_OF_CHUNK = 25


def chunks(first_seed: int, seeds: int) -> list[range]:
    """Divides `seeds` seeds from `first_seed` on into chunks."""
    end = first_seed + seeds
    return [range(start, min(start + SEEDS_OF_CHUNK, end)) for start in range(first_seed, end, SEEDS_OF_CHUNK)]


def seeds_wanted(variable: str, short: int, long: int, first_seed: int, days: int = 7) -> tuple[int, int]:
    """Returns the first seed and the number of seeds.

    In a long run, or if the environment has a number, these start at `first_seed`. Otherwise they are those of the day,
    of which there are `short * days` different ones in `days` days.
    """
    count = depth.number_from(variable, short, long)
    if depth.LONG or os.environ.get(variable):
        return first_seed, count
    return first_seed + depth.part_of_day(days) * count, count


def chunk_id(seeds: range) -> str:
    """Returns the test id of a chunk of seeds."""
    return f"{seeds.start}-{seeds.stop - 1}"


def run_seeds(part: str, seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs a chunk of seeds and prints the speed."""
    steps = STEPS_OF_RUN[part]
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    for seed in seeds:
        assert simulate(part, seed, steps) == steps
    took_s, took_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    step_count = len(seeds) * steps
    with capsys.disabled():
        print(
            f"\n{part}: {len(seeds)} seeds of {steps} steps, {step_count / took_s:.0f} steps a second, "
            f"{step_count / took_cpu_s:.0f} a second of CPU"
        )
