"""The shares of brokers follow what their clients want (policy `adaptive`, CKA-50). Pure.

Whoever has to wait wants more than it is given. What others leave goes to those who wait, at once. When nobody waits,
the shares go back to the parts by partitions, slowly. The sum is what was bought, always.

A broker gets what it wants up to its part by partitions, whatever happens elsewhere (but for rounding). There is no
state but the shares of the last interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quotas.allocation import in_proportion

# A broker whose clients want nothing keeps this part of its part by partitions, so that they can begin: 3.3 %.
FLOOR_DENOMINATOR: Final = 30
# Whoever has enough gets this part more than it uses, so that it can grow without waiting.
HEADROOM_DENOMINATOR: Final = 16
# Who uses so much of its share is held by it. More than what the headroom leaves: who has enough is never taken for
# one that waits.
HELD_NUMERATOR: Final = 31
HELD_DENOMINATOR: Final = 32
# Who is held grows by this part of its share at least, however little is known of what it wants.
GROWTH_DENOMINATOR: Final = 4
# What is wanted is an estimate; it is off by this factor at most.
ESTIMATE_FACTOR: Final = 2
# The same part by partitions may differ so much from broker to broker.
ROUNDING: Final = 1
# Who uses less than this part of a share above its part by partitions is taken for one whose clients are leaving: 1/2.
LEAVING_DENOMINATOR: Final = 2
# When nobody waits, so much of the way back is gone in each interval: 1/8. What differs by less than 1/64 of what was
# bought, or by a few bytes, is gone at once.
RETURN_DENOMINATOR: Final = 8
NEAR_DENOMINATOR: Final = 64


class Demand(NamedTuple):
    """What one broker saw of an instance in the last interval, in bytes/s. `leaders`: the partitions it leads; with 0
    it has no part. `wanted_bps` is at least `admitted_bps`: what was admitted and what had to wait, as an estimate.
    Where nothing had to wait it is `admitted_bps`.
    """

    leaders: int
    admitted_bps: int
    wanted_bps: int


def adapt(bought_bps: int, demands: Sequence[Demand], before: Sequence[int]) -> list[int]:
    """The shares of the next interval. `before` are those that are in force; whoever has none counts as if it had its
    part by partitions. They need not sum up to `bought_bps`.

    Raises:
        ValueError: lengths differ or a number is negative.
    """
    if len(demands) != len(before):
        raise ValueError("demands and shares describe different numbers of brokers")
    if bought_bps < 0 or min(before, default=0) < 0 or any(min(demand) < 0 for demand in demands):
        raise ValueError("what is bought, wanted and given is not negative")
    shares = [0] * len(demands)
    members = [broker for broker, demand in enumerate(demands) if demand.leaders]
    if not members or not bought_bps:
        return shares
    given = _divide(bought_bps, [demands[broker] for broker in members], [before[broker] for broker in members])
    for broker, share in zip(members, given, strict=True):
        shares[broker] = share
    return shares


def _divide(bought_bps: int, demands: list[Demand], before: list[int]) -> list[int]:
    leaders = [demand.leaders for demand in demands]
    parts = in_proportion(bought_bps, leaders)
    floors = [-(-part // FLOOR_DENOMINATOR) for part in parts]
    in_force = [share or part for share, part in zip(before, parts, strict=True)]
    held = [_is_held(demand, share, part) for demand, share, part in zip(demands, in_force, parts, strict=True)]
    needs = [
        _held_need(demand, share) if is_held else _need(demand, share, part)
        for demand, share, part, is_held in zip(demands, in_force, parts, held, strict=True)
    ]
    given, left = _fill(bought_bps, leaders, floors, needs)
    if not left:
        return given
    if any(held):
        waiting = [count if is_held else 0 for count, is_held in zip(leaders, held, strict=True)]
        return _sums(given, in_proportion(left, waiting))
    goal = parts if given == floors else _sums(given, in_proportion(left, leaders))
    if all(share >= part // FLOOR_DENOMINATOR for share, part in zip(before, parts, strict=True)):
        return _toward(goal, before, bought_bps)
    return goal


def _sums(shares: list[int], rest: list[int]) -> list[int]:
    return [share + more for share, more in zip(shares, rest, strict=True)]


def _is_held(demand: Demand, share: int, part: int) -> bool:
    """Whether its share kept a broker's clients from more. Above its part by partitions the estimate has to say so
    beyond doubt.
    """
    if demand.wanted_bps == 0:
        return False
    doubt = ESTIMATE_FACTOR if share > part + ROUNDING else 1
    return HELD_DENOMINATOR * demand.admitted_bps >= HELD_NUMERATOR * share or demand.wanted_bps > doubt * share


def _held_need(demand: Demand, share: int) -> int:
    wanted = max(demand.wanted_bps, demand.admitted_bps)
    return max(wanted + wanted // HEADROOM_DENOMINATOR, share + share // GROWTH_DENOMINATOR)


def _need(demand: Demand, share: int, part: int) -> int:
    """Of one whose clients are leaving a report has what was wanted before: it keeps its part by partitions at most.
    Where nothing had to wait, what was admitted is all that is wanted, however large the share was.
    """
    wanted = max(demand.wanted_bps, demand.admitted_bps)
    need = min(share, wanted + wanted // HEADROOM_DENOMINATOR)
    is_leaving = wanted > demand.admitted_bps and LEAVING_DENOMINATOR * demand.admitted_bps < share
    return min(need, part) if is_leaving and share > part else need


def _fill(bought_bps: int, leaders: list[int], floors: list[int], needs: list[int]) -> tuple[list[int], int]:
    """Everybody's need, by the same level for each partition where that is too much; and what is left then. The least
    that is needed for a partition comes first: what it leaves of its part is for the others.
    """
    given, left, partitions = list(floors), bought_bps - sum(floors), sum(leaders)
    for broker in sorted(range(len(leaders)), key=lambda id: (needs[id] / leaders[id], id)):
        part = left * leaders[broker] // partitions
        taken = min(part, max(0, needs[broker] - given[broker]))
        given[broker] += taken
        left -= taken
        partitions -= leaders[broker]
    return given, left


def _toward(goal: list[int], before: list[int], bought_bps: int) -> list[int]:
    """A step from the shares `before` on to `goal`. While some have not taken up what others gave up, `before` sums up
    to less than what was bought: then each counts for more.
    """
    total = sum(before)
    if not 0 < total <= bought_bps:
        return goal
    old = [share * bought_bps // total for share in before]
    near = max(RETURN_DENOMINATOR, bought_bps // NEAR_DENOMINATOR)
    if all(abs(share - earlier) <= near for share, earlier in zip(goal, old, strict=True)):
        return goal
    rest = RETURN_DENOMINATOR - 1
    return in_proportion(bought_bps, [rest * earlier + share for share, earlier in zip(goal, old, strict=True)])
