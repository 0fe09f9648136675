"""Quality of bandwidth sharing over brokers, simulated: `python -m benchmarks.sharing`.

Simulates an instance under each policy (`quotas.policies`) with the real limiter and prints a table; `--write` draws it
as SVG. The same seed prints the same figures. The cost of the policies is measured for 1,000 instances.

* Utilisation: bytes that passed, divided by the bytes that could have passed: the lesser of the demand and the
  instance's bandwidth.
* Overshoot: the greatest number of bytes in any ten seconds, relative to the instance's bandwidth.
* Converged: median time from a change to the first second in which 95 % of the bytes that could have passed did pass.
* Fairness: Jain's index of the brokers' bandwidth relative to their fair share, which is their demand, or the same
  level for each partition where the demand is too high.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, get_args

from benchmarks import sharing_plot, sharing_scenarios, sharing_serial
from benchmarks.sharing_world import STEP_MS, Scenario, World
from quotas.adaptive import Demand
from quotas.policies import Policy, share_out

SEED: Final = 7
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
SECOND: Final = 1_000 // STEP_MS
OVERSHOOT_STEPS: Final = 10 * SECOND
CONVERGED: Final = 0.95
INSTANCES: Final = 1_000
COST_ROUNDS: Final = 5
# One direction of one instance in a report: instance, direction, key, basis, limit, share, admitted and wanted bytes.
REPORT_LINE: Final = struct.Struct(">b12sbbqqqqq")


def admitted_bytes(world: World) -> list[int]:
    """Returns the bytes of all brokers in each step."""
    return [sum(step) for step in zip(*(broker.admitted for broker in world.brokers), strict=True)]


def offered_bytes(scenario: Scenario) -> list[tuple[int, ...]]:
    """Returns the demand in each step, in bytes/s by broker."""
    phases = scenario.phases()
    demands, phase = [], 0
    for now_ms in range(0, scenario.length_ms, STEP_MS):
        while now_ms + STEP_MS // 2 >= phases[phase][1]:
            phase += 1
        demands.append(phases[phase][2])
    return demands


def servable_bytes(scenario: Scenario) -> list[float]:
    """Returns the bytes that could have passed in each step."""
    return [min(sum(wants), scenario.bought_bps) * STEP_MS / 1000 for wants in offered_bytes(scenario)]


def overshoot(world: World) -> float:
    """Returns the greatest number of bytes in any ten seconds, relative to the instance's bandwidth."""
    steps = admitted_bytes(world)
    peak_bytes = max(sum(steps[first : first + OVERSHOOT_STEPS]) for first in range(len(steps) - OVERSHOOT_STEPS + 1))
    return peak_bytes / (world.scenario.bought_bps * OVERSHOOT_STEPS * STEP_MS / 1000)


def converged_s(world: World) -> float | None:
    """Returns the median time to converge, or None if it did not converge after half of the changes."""
    steps, servable, durations_s = admitted_bytes(world), servable_bytes(world.scenario), []
    for begin_ms, end_ms, wants in world.scenario.phases():
        if not any(wants):
            continue
        first, last = begin_ms // STEP_MS, end_ms // STEP_MS - SECOND
        converged_steps = (
            step for step in range(first, last + 1)
            if sum(steps[step : step + SECOND]) >= CONVERGED * sum(servable[step : step + SECOND])
        )  # fmt: skip
        converged_step = next(converged_steps, None)
        durations_s.append(float("inf") if converged_step is None else (converged_step - first) * STEP_MS / 1000)
    median_s = median(durations_s)
    return None if median_s == float("inf") else round(median_s, 1)


def fairness(world: World) -> float:
    """Returns Jain's index of the brokers' bandwidth relative to their fair shares."""
    fair_bytes = [0.0] * len(world.brokers)
    for wants in offered_bytes(world.scenario):
        for broker, share in enumerate(fair_shares(world.scenario.bought_bps, world.scenario.leaders, wants)):
            fair_bytes[broker] += share * STEP_MS / 1000
    ratios = [sum(broker.admitted) / share for broker, share in zip(world.brokers, fair_bytes, strict=True) if share]
    return sum(ratios) ** 2 / (len(ratios) * sum(part * part for part in ratios))


def fair_shares(bought_bps: float, leaders: Sequence[int], wants: Sequence[int]) -> list[float]:
    """Returns each broker's demand, limited to the same level for each partition where the total is too high."""
    shares, unassigned_bps, partitions = [0.0] * len(wants), float(bought_bps), sum(leaders)
    for broker in sorted(range(len(wants)), key=lambda broker_id: wants[broker_id] / leaders[broker_id]):
        shares[broker] = min(float(wants[broker]), unassigned_bps * leaders[broker] / partitions)
        unassigned_bps -= shares[broker]
        partitions -= leaders[broker]
    return shares


def figures(world: World) -> dict[str, Any]:
    """Returns the figures of a finished run; without sudden changes of the demand there is no time to converge."""
    has_changes = world.scenario.name in {"one hot partition", "moving hot spot", "skewed"}
    return {
        "scenario": world.scenario.name,
        "policy": world.policy,
        "utilisation": round(sum(admitted_bytes(world)) / sum(servable_bytes(world.scenario)), 3),
        "overshoot": round(overshoot(world), 3),
        "converged_s": converged_s(world) if has_changes else None,
        "fairness": round(fairness(world), 3),
    }


def runs(seed: int) -> Iterator[World]:
    """Runs every scenario under every policy, and yields the finished runs."""
    for scenario in sharing_scenarios.all_of_them(seed):
        for policy in POLICIES:
            world = World(scenario, policy, seed)
            world.run()
            yield world


def cost(policy: Policy, brokers: int = 3, instances: int = INSTANCES) -> dict[str, Any]:
    """Returns the CPU time of one interval for both directions of each instance."""
    random = Random(SEED)
    cases = [
        [Demand(random.randrange(1, 4), flow, flow * random.randrange(1, 4)) for flow in _flows(random, brokers)]
        for _ in range(2 * instances)
    ]
    before = [share_out("static", 20_000_000, demands, [0] * brokers) for demands in cases]
    took_ms = []
    for _ in range(COST_ROUNDS):
        began_s = time.thread_time()
        for demands, shares in zip(cases, before, strict=True):
            share_out(policy, 20_000_000, demands, shares)
        took_ms.append((time.thread_time() - began_s) * 1000)
    return {
        "policy": policy, "instances": instances, "brokers": brokers,
        "cpu_ms_per_interval": round(min(took_ms), 1),
        "report_bytes_per_broker": 2 * instances * REPORT_LINE.size,
    }  # fmt: skip


def _flows(random: Random, brokers: int) -> list[int]:
    return [random.randrange(10_000_000) for _ in range(brokers)]


def measure(seed: int = SEED) -> Iterator[dict[str, Any] | str]:
    """Yields the figures of each scenario and policy, those of serial clients, and the cost of each policy."""
    for world in runs(seed):
        yield {"benchmark": "sharing", **figures(world)}
    yield from sharing_serial.measure()
    for policy in POLICIES:
        yield {"benchmark": "sharing, cost", **cost(policy)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table: a row per scenario; utilisation, overshoot, convergence and fairness of each policy."""
    lines = [
        "| scenario | " + " | ".join(POLICIES) + " |",
        "|---|" + "---|" * len(POLICIES),
    ]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        cells = [_cell(row) for row in rows if row["scenario"] == scenario]
        lines.append(f"| {scenario} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    converged = "" if row["converged_s"] is None else f", {row['converged_s']:.1f} s"
    return f"{row['utilisation']:.1%}, {row['overshoot']:.1%}, {row['fairness']:.2f}{converged}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", type=Path, help="where the drawing goes (SVG)")
    args = parser.parse_args()
    worlds = list(runs(args.seed))
    rows = [figures(world) for world in worlds]
    print("utilisation, overshoot, fairness, converged after\n")
    print(table(rows))
    print()
    for line in sharing_serial.measure():
        if isinstance(line, str):
            print(line)
    for policy in POLICIES:
        for brokers in (3, 12):
            print(cost(policy, brokers))
    if args.write:
        moving = [world for world in worlds if world.scenario.name == "moving hot spot"]
        curves = {world.policy: sharing_plot.per_second(admitted_bytes(world), SECOND) for world in moving}
        args.write.write_text(sharing_plot.svg(rows, curves, moving[0].scenario.bought_bps), encoding="utf-8")


if __name__ == "__main__":
    main()
