"""Command line of the simulator: `make simulate PART=… SEED=… STEPS=…` drives one part of the data plane at random.

It exits with 0, or with 1 and the history that led to a broken promise. A seed always takes the same steps.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.simulation.capacity.world import World
from tests.simulation.cluster.run import ClusterRun
from tests.simulation.coordinators.run import CoordinatorsRun
from tests.simulation.flow.run import FlowRun
from tests.simulation.matrix import quick_directory
from tests.simulation.placement.run import PlacementRun
from tests.simulation.run_log import LogRun
from tests.simulation.scheduling.run import SchedulingRun

STEPS = 20_000
# Steps of a run, after which another begins with its own seed, so that the history of a failure stays short.
STEPS_OF_RUN = {
    "capacity": 3_000,
    "log": 400,
    "cluster": 500,
    "coordinators": 500,
    "flow": 500,
    "scheduling": 200,
    "placement": 2_000,
}
CHECKED_EVERY = 50
HISTORY_SHOWN = 120


class Run(Protocol):
    history: list[str]

    def step(self) -> None: ...

    def check(self) -> None:
        """Checks the whole state; a run may do so in its steps instead."""

    def finish(self) -> None:
        """Ends all faults and checks what must hold then."""

    def close(self) -> None:
        """Releases the resources of the run; to be called in any case."""


PARTS: dict[str, Callable[[int, Path], Run]] = {
    "capacity": lambda seed, _home: World(seed),
    "cluster": ClusterRun,
    "coordinators": CoordinatorsRun,
    "flow": FlowRun,
    "log": LogRun,
    "placement": PlacementRun,
    "scheduling": SchedulingRun,
}


def simulate(part: str, seed: int, steps: int) -> int:
    """Runs one seed and returns the number of steps. Raises the error of a broken promise with its history."""
    with quick_directory() as home:
        run = PARTS[part](seed, home)
        try:
            for step_number in range(1, steps + 1):
                run.step()
                if step_number % CHECKED_EVERY == 0:
                    run.check()
            run.check()
            run.finish()
        except Exception as failure:
            latest_history = run.history[-HISTORY_SHOWN:]
            failure.add_note("\n".join([f"{part}, seed {seed}, after {len(run.history)} steps:", *latest_history]))
            raise
        finally:
            run.close()
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--part", choices=sorted(PARTS), default="log")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first run; drawn and printed if missing")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--go-on", action="store_true", help="continue after a failing seed and print all of them")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"{options.part}: {options.steps} steps from seed {seed}", flush=True)
    failed = _run_from(seed, options)
    if failed:
        print(f"promises broken by {len(failed)} seeds: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _run_from(first_seed: int, options: argparse.Namespace) -> list[int]:
    """Runs seeds one after the other until the steps are used up; returns the seeds that failed."""
    steps_of_run = STEPS_OF_RUN[options.part]
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    failed: list[int] = []
    taken_steps, seed = 0, first_seed
    while taken_steps < options.steps:
        steps = min(steps_of_run, options.steps - taken_steps)
        try:
            simulate(options.part, seed, steps)
        except Exception as failure:
            failed.append(seed)
            print(f"seed {seed} fails: {type(failure).__name__}: {failure}", *failure.__notes__, sep="\n")
            print(f"again: make simulate PART={options.part} SEED={seed} STEPS={steps_of_run}", flush=True)
            if not options.go_on:
                return failed
        taken_steps += steps
        seed += 1
    took_s, took_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    verdict = "" if failed else ", every promise kept"
    print(
        f"{seed - first_seed} seeds, {taken_steps} steps, {taken_steps / took_s:.0f} a second, "
        f"{taken_steps / took_cpu_s:.0f} a second of CPU{verdict}"
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
