"""Rate limit on an instance's changes in ZooKeeper: a token bucket per instance and broker (QUO-40, KIP-599).

A change costs the number of partitions that it creates, adds or deletes; a change of a configuration or a client quota
costs 1. A change that begins while tokens are left is carried out in full, and the next one waits until the debt is
paid. The `controller_mutation_rate` that the instance's owner sets for single clients is a separate limit.
"""

from __future__ import annotations

from typing import Final

from brokers.contract.instance_limits import CHANGES_BURST, CHANGES_PER_S_MAX
from brokers.engine.throttling.charging import Rule
from quotas.token_bucket import TokenBucket

# Tokens of a burst that are spent without a pause after each change.
UNPAUSED_TOKENS: Final = 100
PAUSE_MS_MAX: Final = 50
RULE: Final = Rule("change_rate", "change_rate", None, None)


class ChangeRate(TokenBucket):
    """Token bucket of an instance's changes. Times are monotonic milliseconds."""

    __slots__ = ()

    def __init__(self, per_s: float = CHANGES_PER_S_MAX, burst: float = CHANGES_BURST) -> None:
        super().__init__(per_s, burst)

    def pause_ms(self, began_ms: int, ended_ms: int) -> int:
        """Returns the pause after a change in milliseconds, which lets other instances proceed.

        It is 0 for the first `UNPAUSED_TOKENS` of a burst, then the duration of the change, up to `PAUSE_MS_MAX`.
        """
        if self._tokens > self._burst - UNPAUSED_TOKENS:
            return 0
        return max(0, min(ended_ms - began_ms, PAUSE_MS_MAX))
