"""The paces of whole limits, kept by the flow master for all brokers (decision 110). Pure; times are monotonic
milliseconds.

A broker charges what it admitted and is answered when everything charged so far is paid. Bytes whose answer was lost
may be charged twice: clients then wait longer, never shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.pool import CONTENDED_MS, NEVER_MS, TOPIC_PREFIX, PoolKey, pool_burst_ms
from quotas.pacing import BURST_MS, Pace

# A limit that nobody charges is forgotten after this time, if it is not in debt.
UNUSED_MS: Final = 10_000
# A live broker that sent nothing for this time, though it sends something twice a second, cannot reach the flow master.
SILENT_MS: Final = 1_500


class PoolCharge(NamedTuple):
    """A broker's line: bytes admitted since its last line. `is_contended`: somebody there waits for this limit."""

    limit_bps: int
    amount_bytes: int
    is_contended: bool


class PoolAnswer(NamedTuple):
    """The answer to a line: when everything is paid, from now, negative where idle time is left to spend."""

    due_in_us: int
    is_contended: bool


@dataclass(slots=True)
class _Account:
    limit_bps: int
    pace: Pace
    charged_ms: int
    contended_until_ms: int = NEVER_MS


class PoolLedger:
    """All pools of one term of a flow master. `burst_ms`: what idle time of a limit is worth that is not pooled."""

    def __init__(self, burst_ms: int = BURST_MS, began_ms: int = 0) -> None:
        self._began_ms = began_ms
        self._burst_ms = pool_burst_ms(burst_ms)
        self._accounts: dict[PoolKey, _Account] = {}
        # By instance, and whether they are about topics.
        self._keys: Counter[tuple[str, bool]] = Counter()
        # Broker epoch, sequence and time of the last request of each broker.
        self._last: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def begin(self, broker_id: int, epoch: int, sequence: int, now_ms: int) -> bool:
        """Returns False for a request that is older than another one of its broker, which must be ignored."""
        last = self._last.get(broker_id)
        if last is not None and (epoch, sequence) <= last[:2]:
            return False
        self._last[broker_id] = epoch, sequence, now_ms
        return True

    def silent(self, brokers: Iterable[int], now_ms: int) -> list[int]:
        """Returns the brokers that charge nothing, as they cannot reach the flow master: they use their own parts."""
        oldest_ms = now_ms - SILENT_MS
        return [id for id in brokers if self._last.get(id, (0, 0, self._began_ms))[2] < oldest_ms]

    def on_brokers(self, live: Collection[int]) -> None:
        for broker_id in [known for known in self._last if known not in live]:
            del self._last[broker_id]

    def charge(self, key: PoolKey, charge: PoolCharge, now_ms: int, silent_bps: int = 0) -> PoolAnswer | None:
        """Charges one line. None: an instance has no place for one more client quota. `silent_bps`: the parts of live
        brokers that are silent, which are reserved for them (CKA-35).
        """
        account = self._accounts.get(key)
        if account is None:
            account = self._open(key, charge.limit_bps, now_ms)
            if account is None:
                return None
        pace = account.pace
        if charge.limit_bps != account.limit_bps:
            pace.raised(account.limit_bps, charge.limit_bps, now_ms)
            account.limit_bps = charge.limit_bps
        reserved_bytes = silent_bps * (now_ms - account.charged_ms) // 1000
        account.charged_ms = now_ms
        if charge.is_contended:
            account.contended_until_ms = now_ms + CONTENDED_MS
        pace.charge(max(0, charge.amount_bytes) + reserved_bytes, account.limit_bps, now_ms)
        due_in_ms = max(pace.due_ms - now_ms, -float(self._burst_ms))
        return PoolAnswer(round(due_in_ms * 1000), account.contended_until_ms > now_ms)

    def _open(self, key: PoolKey, limit_bps: int, now_ms: int) -> _Account | None:
        counted = _counted(key)
        if counted is not None:
            if self._keys[counted] >= KEYS_MAX:
                return None
            self._keys[counted] += 1
        account = self._accounts[key] = _Account(limit_bps, Pace(self._burst_ms), now_ms)
        return account

    def sweep(self, now_ms: int) -> None:
        """Forgets limits that nobody uses any more. Call now and then."""
        unused = [
            key
            for key, account in self._accounts.items()
            if now_ms - account.charged_ms >= UNUSED_MS and account.pace.due_ms <= now_ms
        ]
        for key in unused:
            del self._accounts[key]
            counted = _counted(key)
            if counted is not None:
                self._keys[counted] -= 1
                if not self._keys[counted]:
                    del self._keys[counted]


def _counted(key: PoolKey) -> tuple[str, bool] | None:
    """Returns what a limit counts against; None: an instance's bandwidth always has a place."""
    instance_id, _, clients = key
    return (instance_id, clients.startswith(TOPIC_PREFIX)) if clients else None
