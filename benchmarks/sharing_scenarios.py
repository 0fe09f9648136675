"""Demand of the clients of a simulated instance, for `benchmarks.sharing`. Three brokers lead one partition each; the
instance's bandwidth is 20 MB/s.
"""

from __future__ import annotations

from random import Random
from typing import Final

from benchmarks.sharing_world import Scenario

MB: Final = 1_000_000
LENGTH_MS: Final = 60_000
MOVE_MS: Final = 10_000
HOT_AT_MS: Final = 5_000


def all_of_them(seed: int) -> list[Scenario]:
    """Returns all scenarios; random ones are drawn from `seed`."""
    return [
        Scenario(name="steady", changes=[(0, (8 * MB, 5 * MB, 4 * MB))]),
        Scenario(name="skewed", changes=[(0, (24 * MB, 4 * MB, 2 * MB))]),
        hot(),
        Scenario(name="others join", changes=[(0, (40 * MB, 0, 0)), (20_000, (40 * MB, 40 * MB, 40 * MB))]),
        moving(seed),
        bursty(seed),
        noisy(seed),
        Scenario(name="one broker silent", changes=[(0, (40 * MB, 2 * MB, 6 * MB))], silent=(2, 20_000, 40_000)),
    ]


def hot() -> Scenario:
    """The demand for one partition begins after five seconds."""
    return Scenario(name="one hot partition", changes=[(0, (0, 0, 0)), (HOT_AT_MS, (40 * MB, 0, 0))])


def moving(seed: int) -> Scenario:
    """The hot partition changes every ten seconds, at a random time between two reports."""
    random = Random(seed)
    moments = [0, *(moment + random.randrange(1_000) for moment in range(MOVE_MS, LENGTH_MS - MOVE_MS + 1, MOVE_MS))]
    demands = [(40 * MB, 0, 0), (0, 40 * MB, 0), (0, 0, 40 * MB)]
    return Scenario(
        name="moving hot spot",
        changes=[(moment, demands[number % len(demands)]) for number, moment in enumerate(moments)],
    )


def bursty(seed: int) -> Scenario:
    """Each broker's clients demand 30 MB/s for one to three seconds, after three to six seconds of 1 MB/s."""
    random = Random(seed + 1)
    edges: list[tuple[int, int, int]] = []
    for broker in range(3):
        now_ms = random.randrange(3_000)
        while now_ms < LENGTH_MS:
            edges.append((now_ms, broker, 30 * MB))
            now_ms += random.randrange(1_000, 3_000)
            edges.append((now_ms, broker, MB))
            now_ms += random.randrange(3_000, 6_000)
    changes, demands = [(0, (MB, MB, MB))], [MB, MB, MB]
    for now_ms, broker, demand in sorted(edges):
        demands[broker] = demand
        if 0 < now_ms < LENGTH_MS:
            changes.append((now_ms, (demands[0], demands[1], demands[2])))
    return Scenario(name="bursty", changes=changes)


def noisy(seed: int) -> Scenario:
    """The demand of each second is between half and twice the mean; the means are 9, 6 and 3 MB/s."""
    random = Random(seed + 2)
    means = (9 * MB, 6 * MB, 3 * MB)
    return Scenario(
        name="noisy",
        changes=[
            (now_ms, (_around(means[0], random), _around(means[1], random), _around(means[2], random)))
            for now_ms in range(0, LENGTH_MS, 1_000)
        ],
    )


def _around(mean: int, random: Random) -> int:
    return int(mean * 2 ** random.uniform(-1, 1))
