"""Budget of reads of the change log that requests for unknown topics cause."""

from __future__ import annotations

from typing import Final

from brokers.engine.clock import Clock
from quotas.token_bucket import TokenBucket

# Burst and rate per second, of one instance and of all together.
LOOKS_BURST: Final = 10
LOOKS_PER_S: Final = 2
ALL_LOOKS_BURST: Final = 40
ALL_LOOKS_PER_S: Final = 20
# Maximum number of instances with a budget of their own; the oldest is dropped, and starts anew.
INSTANCES_REMEMBERED_MAX: Final = 1_000


class TopicLooks:
    """Budget of reads of the change log, for each instance and for all together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = TokenBucket(ALL_LOOKS_PER_S, ALL_LOOKS_BURST - 1)
        self._of_instances: dict[str, TokenBucket] = {}

    def take(self, instance_id: str) -> bool:
        """True if the instance may cause a read now, which is charged."""
        now_ms = self._clock.monotonic_ms()
        own = self._of_instances.get(instance_id)
        if own is None:
            if len(self._of_instances) >= INSTANCES_REMEMBERED_MAX:
                del self._of_instances[next(iter(self._of_instances))]
            own = self._of_instances[instance_id] = TokenBucket(LOOKS_PER_S, LOOKS_BURST - 1)
        if own.is_exhausted(now_ms) or self._all.is_exhausted(now_ms):
            return False
        own.charge(1, now_ms)
        self._all.charge(1, now_ms)
        return True
