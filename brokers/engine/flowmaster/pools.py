"""Pacing of whole limits by the flow master, for all brokers together (decision 110). Pure; times are monotonic
milliseconds.

A broker charges the bytes that it admitted, and the answer has the time at which all charged bytes are paid. If a
response is lost, its bytes may be charged twice: clients then wait longer, never shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.pool import CONTENDED_MS, NEVER_MS, TOPIC_PREFIX, PoolKey, pool_burst_ms
from quotas.pacing import BURST_MS, Pace

# A limit without charges is forgotten after this time, if it is not in debt.
UNUSED_MS: Final = 10_000
# A live broker sends a request at least twice a second; without one for this time it cannot reach the flow master.
SILENT_MS: Final = 1_500


class PoolCharge(NamedTuple):
    """Charge of a broker: the bytes that it admitted since its last charge; `is_contended` is True if clients there
    wait for this limit.
    """

    limit_bps: int
    amount_bytes: int
    is_contended: bool


class PoolResponse(NamedTuple):
    """Response to a charge: time from now until everything is paid, negative if unused credit is left."""

    due_in_us: int
    is_contended: bool


@dataclass(slots=True)
class _Account:
    """State of one pool: its limit, the pace at which charged bytes are paid, and the time of the last charge."""

    limit_bps: int
    pace: Pace
    charged_ms: int
    contended_until_ms: int = NEVER_MS


class PoolLedger:
    """All pools of one term of a flow master; `burst_ms` is the credit for idle time of a limit that is not pooled."""

    def __init__(self, burst_ms: int = BURST_MS, began_ms: int = 0) -> None:
        self._began_ms = began_ms
        self._burst_ms = pool_burst_ms(burst_ms)
        self._accounts: dict[PoolKey, _Account] = {}
        # Number of keys by (instance, whether they are about topics).
        self._key_counts: Counter[tuple[str, bool]] = Counter()
        # (broker epoch, sequence, time in ms) of the last request of each broker.
        self._last_request_by_broker: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def begin_report(self, broker_id: int, epoch: int, sequence: int, now_ms: int) -> bool:
        """Begins a request; returns False if it is older than the last one of its broker and must be ignored."""
        last = self._last_request_by_broker.get(broker_id)
        if last is not None and (epoch, sequence) <= last[:2]:
            return False
        self._last_request_by_broker[broker_id] = epoch, sequence, now_ms
        return True

    def silent_brokers(self, brokers: Iterable[int], now_ms: int) -> list[int]:
        """Returns the brokers without a recent request: they cannot reach the flow master and use static parts."""
        oldest_ms = now_ms - SILENT_MS
        return [id for id in brokers if self._last_request_by_broker.get(id, (0, 0, self._began_ms))[2] < oldest_ms]

    def set_live_brokers(self, live: Collection[int]) -> None:
        """Forgets brokers that are not live."""
        for broker_id in [known for known in self._last_request_by_broker if known not in live]:
            del self._last_request_by_broker[broker_id]

    def charge(self, key: PoolKey, charge: PoolCharge, now_ms: int, silent_bps: int = 0) -> PoolResponse | None:
        """Charges one limit; returns None if the instance has too many client quotas.

        `silent_bps` are the parts of live brokers without contact, which are reserved for them (CKA-35).
        """
        account = self._accounts.get(key)
        if account is None:
            account = self._open_account(key, charge.limit_bps, now_ms)
            if account is None:
                return None
        pace = account.pace
        if charge.limit_bps != account.limit_bps:
            pace.convert_debt(account.limit_bps, charge.limit_bps, now_ms)
            account.limit_bps = charge.limit_bps
        reserved_bytes = silent_bps * (now_ms - account.charged_ms) // 1000
        account.charged_ms = now_ms
        if charge.is_contended:
            account.contended_until_ms = now_ms + CONTENDED_MS
        pace.charge(max(0, charge.amount_bytes) + reserved_bytes, account.limit_bps, now_ms)
        due_in_ms = max(pace.due_ms - now_ms, -float(self._burst_ms))
        return PoolResponse(round(due_in_ms * 1000), account.contended_until_ms > now_ms)

    def _open_account(self, key: PoolKey, limit_bps: int, now_ms: int) -> _Account | None:
        counter_key = _quota_counter_key(key)
        if counter_key is not None:
            if self._key_counts[counter_key] >= KEYS_MAX:
                return None
            self._key_counts[counter_key] += 1
        account = self._accounts[key] = _Account(limit_bps, Pace(self._burst_ms), now_ms)
        return account

    def sweep(self, now_ms: int) -> None:
        """Forgets limits that are no longer used; called periodically."""
        unused = [
            key
            for key, account in self._accounts.items()
            if now_ms - account.charged_ms >= UNUSED_MS and account.pace.due_ms <= now_ms
        ]
        for key in unused:
            del self._accounts[key]
            counter_key = _quota_counter_key(key)
            if counter_key is not None:
                self._key_counts[counter_key] -= 1
                if not self._key_counts[counter_key]:
                    del self._key_counts[counter_key]


def _quota_counter_key(key: PoolKey) -> tuple[str, bool] | None:
    """Returns the counter that a limit counts against; None for an instance's bandwidth, which is always accepted."""
    instance_id, _, clients = key
    return (instance_id, clients.startswith(TOPIC_PREFIX)) if clients else None
