"""What an instance has written to the state topics: offsets, groups, transactions. It counts as produced.

It is charged to the produce bandwidth, and paced once more by itself: calls that write state wait for what state costs,
and not for the instance's producers.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import PRODUCER_BYTE_RATE, Limiter, Rule, charge
from quotas.pacing import Pace

RULE: Final = Rule("instance_bandwidth", PRODUCER_BYTE_RATE, None, None)
# Unused bandwidth is worth so long at most: a consumer of thousands of partitions commits them all at once.
STATE_BURST_MS: Final = 2_000
# The keys of records of state topics: a version and a length of two bytes each, then the id, which begins with the
# instance's.
_ID_AT: Final = 4
_ID_END: Final = 16
_PREFIX: Final = b"ins-"


class StateBytes:
    """Of one instance on this broker. `limit_per_s` 0: not known yet, and nothing waits. `written`: all there was."""

    __slots__ = ("_pace", "limit_per_s", "written")

    def __init__(self) -> None:
        self._pace = Pace(STATE_BURST_MS)
        self.limit_per_s = 0.0
        self.written = 0

    def charge(self, size_bytes: int, share: Limiter | None, now_ms: int) -> None:
        """`now_ms` is monotonic, here and below."""
        self.written += size_bytes
        if share is not None:
            charge((share,), size_bytes, now_ms)
        if self.limit_per_s > 0:
            self._pace.charge(size_bytes, self.limit_per_s, now_ms)

    def debt_ms(self, now_ms: int) -> int:
        """How long a call is to wait for what was written so far."""
        return self._pace.debt_ms(now_ms)


def instance_of(key: bytes) -> str | None:
    """Whose record of a state topic this is; None: nobody's."""
    if key[_ID_AT : _ID_AT + len(_PREFIX)] != _PREFIX or key[_ID_END : _ID_END + 1] != b".":
        return None
    return key[_ID_AT:_ID_END].decode("ascii", "replace")
