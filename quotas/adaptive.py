"""Adaptive shares of brokers that follow the demand of their clients (policy `adaptive`, CKA-50). Pure.

A broker's *part by partitions* is the bandwidth bought, divided in proportion to the partitions that each broker leads.
A broker whose clients have to wait demands more than its share. It immediately gets the unused bandwidth of other
brokers. When no client waits, shares slowly return to the parts by partitions. The shares always sum to the bandwidth
bought.

A broker gets its demand up to its part by partitions, regardless of the demand of other brokers (except for rounding).
The only state is the shares of the last interval.
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
# When no client waits, shares move by this fraction of the distance to their goal in each interval: 1/8. If all
# distances are below 1/64 of the bandwidth bought, or a few bytes, the goal is reached in one step.
RETURN_DENOMINATOR: Final = 8
TOLERANCE_DENOMINATOR: Final = 64


class Demand(NamedTuple):
    """Demand of an instance's clients at one broker in the last interval, in bytes/s.

    `leaders` is the number of partitions that the broker leads; a broker that leads none gets no share. `admitted_bps`
    is the traffic that passed. `wanted_bps` estimates the traffic without throttling; if nothing was delayed, it equals
    `admitted_bps`.
    """

    leaders: int
    admitted_bps: int
    wanted_bps: int


def adapt(bought_bps: int, demands: Sequence[Demand], previous_shares: Sequence[int]) -> list[int]:
    """Returns the shares of the next interval.

    `previous_shares` are the shares in force, which need not sum to `bought_bps`. A previous share of 0 is treated as
    the broker's part by partitions.

    Raises:
        ValueError: lengths differ or a number is negative.
    """
    if len(demands) != len(previous_shares):
        raise ValueError("demands and shares describe different numbers of brokers")
    if bought_bps < 0 or min(previous_shares, default=0) < 0 or any(min(demand) < 0 for demand in demands):
        raise ValueError("bandwidth, demands and shares must not be negative")
    shares = [0] * len(demands)
    members = [broker for broker, demand in enumerate(demands) if demand.leaders]
    if not members or not bought_bps:
        return shares
    member_shares = _adapt_members(
        bought_bps, [demands[broker] for broker in members], [previous_shares[broker] for broker in members]
    )
    for broker, share in zip(members, member_shares, strict=True):
        shares[broker] = share
    return shares


def _adapt_members(bought_bps: int, demands: list[Demand], previous_shares: list[int]) -> list[int]:
    leaders = [demand.leaders for demand in demands]
    parts = in_proportion(bought_bps, leaders)
    floors = [-(-part // FLOOR_DENOMINATOR) for part in parts]
    in_force = [share or part for share, part in zip(previous_shares, parts, strict=True)]
    limited = [_is_limited(demand, share, part) for demand, share, part in zip(demands, in_force, parts, strict=True)]
    needs = [
        _need_if_limited(demand, share) if is_limited else _need_if_unlimited(demand, share, part)
        for demand, share, part, is_limited in zip(demands, in_force, parts, limited, strict=True)
    ]
    assigned, remainder = _assign_needs(bought_bps, leaders, floors, needs)
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


def _need_if_limited(demand: Demand, share: int) -> int:
    demand_bps = max(demand.wanted_bps, demand.admitted_bps)
    return max(demand_bps + demand_bps // HEADROOM_DENOMINATOR, share + share // GROWTH_DENOMINATOR)


def _need_if_unlimited(demand: Demand, share: int, part: int) -> int:
    """Returns the bandwidth in bytes/s that a broker needs whose share did not limit its clients: at most its share.

    A broker that is losing clients reports an outdated demand, so it keeps at most its part by partitions.
    """
    demand_bps = max(demand.wanted_bps, demand.admitted_bps)
    need = min(share, demand_bps + demand_bps // HEADROOM_DENOMINATOR)
    is_losing_clients = demand_bps > demand.admitted_bps and LOSING_DENOMINATOR * demand.admitted_bps < share
    return min(need, part) if is_losing_clients and share > part else need


def _assign_needs(bought_bps: int, leaders: list[int], floors: list[int], needs: list[int]) -> tuple[list[int], int]:
    """Returns the bandwidth assigned to each broker, and the unassigned remainder of `bought_bps`, in bytes/s.

    Each broker gets its need, or at least its floor. If the needs exceed `bought_bps`, they are limited to an equal
    amount per partition. Brokers with the smallest need per partition are served first, because the bandwidth that
    they do not need goes to the others.
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
    """Returns shares that lie a fraction of the distance from `previous_shares` to `goal`.

    If `previous_shares` sum to less than `bought_bps`, they are scaled up first.
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
