"""Distribution of an instance's bandwidth over its brokers by policy. Pure.

    share_out("adaptive", bought_bps, demands, previous_shares)  ->  one integer per broker, in the given order
    share_out_among("adaptive", bought_bps, demands, previous_shares, reserved)  ->  likewise if brokers do not report

`static`, `literal`, `normalised` and `weighted` are CKafka's policies (`quotas.allocation`, CKA-27…33), `adaptive` is
Penstock's own (`quotas.adaptive`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from quotas.adaptive import Demand, adapt
from quotas.allocation import allocate

Policy = Literal["static", "literal", "normalised", "weighted", "adaptive"]
POLICIES: Final = frozenset(get_args(Policy))
DEFAULT_POLICY: Final[Policy] = "adaptive"


def share_out(policy: Policy, bought_bps: int, demands: Sequence[Demand], previous_shares: Sequence[int]) -> list[int]:
    """Returns the share of each broker of `bought_bps` (bytes/s).

    `previous_shares` are the shares of the last interval, or all 0 in the first interval.

    Order the brokers by id, because it breaks ties.

    Raises:
        ValueError: lengths differ, a number is negative, or the policy is unknown.
    """
    if policy == "adaptive":
        return adapt(bought_bps, demands, previous_shares)
    return allocate(
        bought_bps, [demand.leaders for demand in demands], [demand.admitted_bps for demand in demands], policy
    )


def share_out_among(
    policy: Policy,
    bought_bps: int,
    demands: Sequence[Demand],
    previous_shares: Sequence[int],
    reserved: Sequence[int | None],
) -> list[int]:
    """Returns shares like `share_out` if some brokers did not report.

    A broker with a number in `reserved` did not report: it keeps that share, and the others divide the remainder
    (CKA-35). The reserved shares may exceed `bought_bps` after it was lowered; the others then get 0.

    Raises:
        ValueError: as for `share_out`, or a reserved share is negative.
    """
    if len(reserved) != len(demands) or len(previous_shares) != len(demands):
        raise ValueError("demands, previous shares and reserved shares describe different numbers of brokers")
    if any(share is not None and share < 0 for share in reserved):
        raise ValueError("reserved shares must not be negative")
    reporting = [broker for broker, share in enumerate(reserved) if share is None]
    remaining_bps = max(0, bought_bps - sum(share for share in reserved if share is not None))
    reporting_shares = share_out(
        policy, remaining_bps, [demands[id] for id in reporting], [previous_shares[id] for id in reporting]
    )
    shares = [0 if share is None else share for share in reserved]
    for broker, share in zip(reporting, reporting_shares, strict=True):
        shares[broker] = share
    return shares
