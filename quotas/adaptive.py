"""Adaptive shares of brokers that follow the demand of their clients (policy `adaptive`, CKA-50). Pure.

A broker whose clients have to wait wants more than its share. Unused bandwidth of other brokers goes to it immediately.
When no client waits, shares slowly return to the parts by partitions. The sum always equals the bandwidth bought.

A broker gets its demand up to its part by partitions, regardless of the others (except for rounding). The only state is
the shares of the last interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quotas.allocation import in_proportion

# A broker without demand keeps this fraction of its part by partitions, so that clients can start: 3.3 %.
FLOOR_DENOMINATOR: Final = 30
# A broker with enough bandwidth gets this fraction above its use, so that it can grow without waiting.
HEADROOM_DENOMINATOR: Final = 16
# A broker that uses this fraction of its share is limited by it. The fraction exceeds what the headroom leaves, so that
# a broker with enough bandwidth never counts as limited.
LIMITED_NUMERATOR: Final = 31
LIMITED_DENOMINATOR: Final = 32
# A limited broker grows by at least this fraction of its share, even if its demand is uncertain.
GROWTH_DENOMINATOR: Final = 4
# Demand is an estimate with at most this factor of error.
ESTIMATE_FACTOR: Final = 2
# Maximum difference of equal parts by partitions between brokers, due to rounding.
ROUNDING: Final = 1
# A broker that uses less than this fraction of a share above its part by partitions counts as losing clients: 1/2.
LOSING_DENOMINATOR: Final = 2
# Fraction of the way back per interval when no client waits: 1/8. Differences below 1/64 of the bandwidth bought, or of
# a few bytes, are removed at once.
RETURN_DENOMINATOR: Final = 8
TOLERANCE_DENOMINATOR: Final = 64


class Demand(NamedTuple):
    """Demand of one broker for an instance in the last interval, in bytes/s.

    `leaders` is the number of partitions it leads; without any it has no part. `wanted_bps` estimates what was admitted
    and what had to wait, so it is at least `admitted_bps`, and equal to it if nothing had to wait.
    """

    leaders: int
    admitted_bps: int
    wanted_bps: int


def adapt(bought_bps: int, demands: Sequence[Demand], previous_shares: Sequence[int]) -> list[int]:
    """Returns the shares of the next interval.

    `previous_shares` are the shares in force; a broker without one counts as if it had its part by partitions. They
    need not sum to `bought_bps`.

    Raises:
        ValueError: lengths differ or a number is negative.
    """
    if len(demands) != len(previous_shares):
        raise ValueError("demands and shares describe different numbers of brokers")
    if bought_bps < 0 or min(previous_shares, default=0) < 0 or any(min(demand) < 0 for demand in demands):
        raise ValueError("what is bought, wanted and given is not negative")
    shares = [0] * len(demands)
    members = [broker for broker, demand in enumerate(demands) if demand.leaders]
    if not members or not bought_bps:
        return shares
    member_shares = _divide(
        bought_bps, [demands[broker] for broker in members], [previous_shares[broker] for broker in members]
    )
    for broker, share in zip(members, member_shares, strict=True):
        shares[broker] = share
    return shares


def _divide(bought_bps: int, demands: list[Demand], previous_shares: list[int]) -> list[int]:
    leaders = [demand.leaders for demand in demands]
    parts = in_proportion(bought_bps, leaders)
    floors = [-(-part // FLOOR_DENOMINATOR) for part in parts]
    in_force = [share or part for share, part in zip(previous_shares, parts, strict=True)]
    limited = [_is_limited(demand, share, part) for demand, share, part in zip(demands, in_force, parts, strict=True)]
    needs = [
        _limited_need(demand, share) if is_limited else _need(demand, share, part)
        for demand, share, part, is_limited in zip(demands, in_force, parts, limited, strict=True)
    ]
    assigned, remainder = _fill(bought_bps, leaders, floors, needs)
    if not remainder:
        return assigned
    if any(limited):
        limited_leaders = [count if is_limited else 0 for count, is_limited in zip(leaders, limited, strict=True)]
        return _add_elementwise(assigned, in_proportion(remainder, limited_leaders))
    goal = parts if assigned == floors else _add_elementwise(assigned, in_proportion(remainder, leaders))
    if all(share >= part // FLOOR_DENOMINATOR for share, part in zip(previous_shares, parts, strict=True)):
        return _step_toward(goal, previous_shares, bought_bps)
    return goal


def _add_elementwise(shares: list[int], additions: list[int]) -> list[int]:
    return [share + addition for share, addition in zip(shares, additions, strict=True)]


def _is_limited(demand: Demand, share: int, part: int) -> bool:
    """True if the clients of a broker were limited by its share.

    Above the broker's part by partitions, the demand must exceed the share even if the estimate is off by its factor of
    error.
    """
    if demand.wanted_bps == 0:
        return False
    error_factor = ESTIMATE_FACTOR if share > part + ROUNDING else 1
    return (
        LIMITED_DENOMINATOR * demand.admitted_bps >= LIMITED_NUMERATOR * share
        or demand.wanted_bps > error_factor * share
    )


def _limited_need(demand: Demand, share: int) -> int:
    demand_bps = max(demand.wanted_bps, demand.admitted_bps)
    return max(demand_bps + demand_bps // HEADROOM_DENOMINATOR, share + share // GROWTH_DENOMINATOR)


def _need(demand: Demand, share: int, part: int) -> int:
    """Returns the bandwidth in bytes/s that a broker needs whose share did not limit its clients: at most its share.

    The report of a broker that is losing clients states an outdated demand, so it keeps at most its part by partitions.
    If nothing had to wait, the admitted amount is the whole demand, regardless of the share.
    """
    demand_bps = max(demand.wanted_bps, demand.admitted_bps)
    need = min(share, demand_bps + demand_bps // HEADROOM_DENOMINATOR)
    is_losing_clients = demand_bps > demand.admitted_bps and LOSING_DENOMINATOR * demand.admitted_bps < share
    return min(need, part) if is_losing_clients and share > part else need


def _fill(bought_bps: int, leaders: list[int], floors: list[int], needs: list[int]) -> tuple[list[int], int]:
    """Returns each broker's need, limited to an equal level per partition if the sum is too large, and the remainder.

    Brokers with the smallest need per partition come first: what they leave of their part goes to the others.
    """
    assigned, remainder, partitions = list(floors), bought_bps - sum(floors), sum(leaders)
    for broker in sorted(range(len(leaders)), key=lambda id: (needs[id] / leaders[id], id)):
        part = remainder * leaders[broker] // partitions
        grant = min(part, max(0, needs[broker] - assigned[broker]))
        assigned[broker] += grant
        remainder -= grant
        partitions -= leaders[broker]
    return assigned, remainder


def _step_toward(goal: list[int], previous_shares: list[int], bought_bps: int) -> list[int]:
    """Returns the next step from the shares `previous_shares` to `goal`.

    While released bandwidth is not assigned yet, `previous_shares` sums to less than the bandwidth bought, and is
    scaled up.
    """
    total = sum(previous_shares)
    if not 0 < total <= bought_bps:
        return goal
    scaled = [share * bought_bps // total for share in previous_shares]
    tolerance = max(RETURN_DENOMINATOR, bought_bps // TOLERANCE_DENOMINATOR)
    if all(abs(share - previous) <= tolerance for share, previous in zip(goal, scaled, strict=True)):
        return goal
    previous_weight = RETURN_DENOMINATOR - 1
    return in_proportion(
        bought_bps, [previous_weight * previous + share for share, previous in zip(goal, scaled, strict=True)]
    )
