"""The shares of brokers follow what their clients want (policy `adaptive`). Pure.

Whoever has to wait wants more than it is given. What nobody uses goes to those, and comes back when it is wanted: the
sum is what was bought, always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quotas.allocation import allocate

# However little a broker's clients want, so much of its part by partitions stays with it, so that they can begin: 1 in
# so many bytes.
FLOOR_PART: Final = 10


class Demand(NamedTuple):
    """What one broker saw of an instance in the last interval, in bytes/s. `leaders`: the partitions it leads; with 0
    it has no part. `wanted_bps` is at least `admitted_bps`: what was admitted and what had to wait.
    """

    leaders: int
    admitted_bps: int
    wanted_bps: int


def adapt(bought_bps: int, demands: Sequence[Demand], before: Sequence[int]) -> list[int]:
    """
    Raises:
        ValueError: lengths differ or a number is negative.
    """
    if len(demands) != len(before):
        raise ValueError("demands and shares describe different numbers of brokers")
    if bought_bps < 0 or min(before, default=0) < 0 or any(min(demand) < 0 for demand in demands):
        raise ValueError("what is bought, wanted and given is not negative")
    leaders = [demand.leaders for demand in demands]
    static = allocate(bought_bps, leaders, [0] * len(demands), "static")
    if not any(demand.wanted_bps for demand in demands if demand.leaders):
        return static
    floors = [-(-share // FLOOR_PART) for share in static]
    left = bought_bps - sum(floors)
    given = list(floors)
    hungry = [broker for broker, demand in enumerate(demands) if demand.leaders]
    # The least that is wanted first: what it leaves of its part is for the others.
    for position, broker in enumerate(sorted(hungry, key=lambda id: (demands[id].wanted_bps, id))):
        part = left // (len(hungry) - position)
        taken = min(part, max(0, demands[broker].wanted_bps - given[broker]))
        given[broker] += taken
        left -= taken
    if left > 0:
        rest = allocate(left, leaders, [0] * len(demands), "static")
        given = [share + more for share, more in zip(given, rest, strict=True)]
    return given
