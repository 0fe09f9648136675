"""Allocation of a tenant's bandwidth to the brokers that lead its partitions (CKA-27…33, CKA-38). Pure.

    allocate(quota, leaders, flows)  ->  one integer per broker, in the order given

The arithmetic is exact integer arithmetic, so that the shares sum to the bandwidth bought. Comments name the steps of
the algorithm as docs/spec/kafka-spec.md numbers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Final, Literal, get_args

Mode = Literal["normalised", "literal", "static", "weighted"]
MODES: Final = frozenset(get_args(Mode))

# A flow below this fraction of a broker's part has headroom (step 3). Flows are balanced if the smallest is at least
# this fraction of the largest (step 5). 80 %.
BALANCED_NUMERATOR: Final = 4
BALANCED_DENOMINATOR: Final = 5
# Every broker but the busiest may grow by this fraction of the busiest one's share (step 5b): 10 %.
GROWTH_DENOMINATOR: Final = 10


def allocate(quota: int, leaders: Sequence[int], flows: Sequence[int], mode: Mode = "normalised") -> list[int]:
    """Returns shares of `quota` (bytes/s) for brokers that lead `leaders` partitions and had `flows` bytes/s.

    Brokers without leaders get 0 and their flow is ignored (CKA-27). Order the brokers by id, because it breaks
    rounding ties.

    Raises:
        ValueError: lengths differ, a number is negative, or the mode is unknown.
    """
    if len(leaders) != len(flows):
        raise ValueError("leaders and flows describe different numbers of brokers")
    if quota < 0 or min(leaders, default=0) < 0 or min(flows, default=0) < 0:
        raise ValueError("quota, leaders and flows are not negative")
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}")
    leading_brokers = [broker for broker, count in enumerate(leaders) if count]
    shares = [0] * len(leaders)
    if not leading_brokers or quota == 0:
        return shares
    partition_counts = [leaders[broker] for broker in leading_brokers]
    member_flows = [flows[broker] for broker in leading_brokers]
    if mode == "static" or _all_have_headroom(quota, partition_counts, member_flows):
        member_shares = in_proportion(quota, partition_counts)
    elif mode == "weighted":
        member_shares = _divide_by_load(quota, partition_counts, member_flows)
    elif _is_balanced(member_flows):
        member_shares = in_proportion(quota, member_flows)
    else:
        weights = _growth_weights(member_flows)
        if mode == "literal":
            member_shares = [quota * weight // (GROWTH_DENOMINATOR * sum(member_flows)) for weight in weights]
        else:
            member_shares = in_proportion(quota, weights)
    for broker, share in zip(leading_brokers, member_shares, strict=True):
        shares[broker] = share
    return shares


def in_proportion(quota: int, weights: Sequence[int]) -> list[int]:
    """Divides `quota` into integers by `weights`, not all of which are 0 (CKA-32).

    Shares are rounded down. The missing units go to the shares with the largest fractional parts, the first of equal
    ones. Each share is at least 1 if `quota` suffices.
    """
    total = sum(weights)
    shares = [quota * weight // total for weight in weights]
    missing_units = quota - sum(shares)
    indexes_by_fraction = sorted(range(len(weights)), key=lambda index: (-(quota * weights[index] % total), index))
    for index in indexes_by_fraction[:missing_units]:
        shares[index] += 1
    if quota >= len(shares):
        for index, share in enumerate(shares):
            if share == 0:
                largest = shares.index(max(shares))
                shares[largest] -= 1
                shares[index] = 1
    return shares


def _all_have_headroom(quota: int, partition_counts: list[int], member_flows: list[int]) -> bool:
    """True if every flow is strictly below 80 % of the broker's part by partitions (step 3, CKA-28)."""
    total = sum(partition_counts)
    return all(
        BALANCED_DENOMINATOR * flow * total < BALANCED_NUMERATOR * quota * count
        for flow, count in zip(member_flows, partition_counts, strict=True)
    )


def _is_balanced(member_flows: list[int]) -> bool:
    """True if the smallest flow is at least 80 % of the largest (step 5a, CKA-30)."""
    return BALANCED_DENOMINATOR * min(member_flows) >= BALANCED_NUMERATOR * max(member_flows)


def _divide_by_load(quota: int, partition_counts: list[int], member_flows: list[int]) -> list[int]:
    """Returns shares by step 5, in which brokers are compared by their flow per partition (P/F instead of P, CKA-31).

    A broker that leads more partitions may thus have a larger share.
    """
    common_multiple = lcm(*partition_counts)
    loads = [flow * common_multiple // count for flow, count in zip(member_flows, partition_counts, strict=True)]
    if _is_balanced(loads):
        return in_proportion(quota, member_flows)
    return in_proportion(
        quota, [load * count for load, count in zip(_growth_weights(loads), partition_counts, strict=True)]
    )


def _growth_weights(member_flows: list[int]) -> list[int]:
    """Returns weights by step 5b: each flow plus 10 % of the largest, but not more than the largest (scaled by 10)."""
    largest = max(member_flows)
    return [min(GROWTH_DENOMINATOR * flow + largest, GROWTH_DENOMINATOR * largest) for flow in member_flows]
