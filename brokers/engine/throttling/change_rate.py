"""How fast an instance may change what is in ZooKeeper: a token bucket (QUO-40, KIP-599), per instance and broker.

A change costs the partitions that it makes, adds or deletes; one of a configuration or a client quota costs 1. What
begins with tokens left is done in full, and the next change waits until what it took too much is paid for.

What the instance's owner allows single clients is beside it (`mutation_rate`).
"""

from __future__ import annotations

from typing import Final

from brokers.contract.instance_limits import CHANGES_BURST, CHANGES_PER_S_MAX
from brokers.engine.throttling.charging import Rule
from quotas.token_bucket import TokenBucket

# So much of a burst is done without a rest.
UNRESTED: Final = 100
REST_MS_MAX: Final = 50
RULE: Final = Rule("change_rate", "change_rate", None, None)


class ChangeRate(TokenBucket):
    """Times are monotonic milliseconds."""

    __slots__ = ()

    def __init__(self, per_s: float = CHANGES_PER_S_MAX, burst: float = CHANGES_BURST) -> None:
        super().__init__(per_s, burst)

    def rest_ms(self, began_ms: int, ended_ms: int) -> int:
        """How long the instance lets others go on after a change: as long as it took, once it made many."""
        if self._tokens > self._burst - UNRESTED:
            return 0
        return max(0, min(ended_ms - began_ms, REST_MS_MAX))
