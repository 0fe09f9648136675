"""How the bandwidth of an instance is shared out over its brokers, by policy. Pure.

    share_out("adaptive", bought_bps, demands, before)  ->  one integer per broker, in the order given

`static`, `literal` and `normalised` are CKafka's (`quotas.allocation`, CKA-27…33), `adaptive` is ours
(`quotas.adaptive`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from quotas.adaptive import Demand, adapt
from quotas.allocation import allocate

Policy = Literal["static", "literal", "normalised", "adaptive"]
POLICIES: Final = frozenset(get_args(Policy))
DEFAULT_POLICY: Final[Policy] = "adaptive"


def share_out(policy: Policy, bought_bps: int, demands: Sequence[Demand], before: Sequence[int]) -> list[int]:
    """Shares of `bought_bps` (bytes/s). `before` are the shares of the last interval; all 0 when there was none.

    Order the brokers by id: it breaks ties.

    Raises:
        ValueError: lengths differ, a number is negative, or the policy is unknown.
    """
    if policy == "adaptive":
        return adapt(bought_bps, demands, before)
    return allocate(
        bought_bps, [demand.leaders for demand in demands], [demand.admitted_bps for demand in demands], policy
    )
