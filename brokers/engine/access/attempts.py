"""Rate limit on failed authentications, by instance, user and address, and by instance and address. Pure.

A failure adds to a bucket that leaks at an even rate. While a bucket is full, attempts are refused without checking the
password, each with a longer delay. Open connections and other addresses are not affected.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address
from typing import Final

from brokers.contract.authentication_limits import (
    ADDRESS_FAILURES_BURST,
    ADDRESS_FAILURES_PER_MINUTE,
    USER_FAILURES_BURST,
    USER_FAILURES_PER_MINUTE,
)
from brokers.contract.users import USER_NAME_BYTES_MAX
from brokers.engine.access.authorizer import Address

# Delay of the answer to a refused attempt: at first that of a wrong password, then doubled each time.
REFUSED_DELAY_MS_MIN: Final = 100
REFUSED_DELAY_MS_MAX: Final = 10_000
# Maximum number of buckets of one instance; the one with the oldest failure is dropped for another.
BUCKETS_MAX: Final = 1_000
_MINUTE_MS: Final = 60_000
# IPv6 addresses share a bucket by their first 64 bits, because a single customer gets at least a /64.
_SHARED_V6_BITS: Final = 64


class _Bucket:
    """A leaky bucket of failures: `level` falls by `per_minute` failures a minute."""

    __slots__ = ("burst", "level", "per_minute", "refused_in_a_row", "updated_ms")

    def __init__(self, burst: int, per_minute: int, now_ms: int) -> None:
        self.burst = burst
        self.per_minute = per_minute
        self.level = 0.0
        self.updated_ms = now_ms
        # Attempts refused in a row.
        self.refused_in_a_row = 0

    def leak(self, now_ms: int) -> None:
        self.level = max(0.0, self.level - (now_ms - self.updated_ms) * self.per_minute / _MINUTE_MS)
        self.updated_ms = now_ms

    @property
    def is_full(self) -> bool:
        return self.level > self.burst - 1


def peer_key(address: Address) -> str:
    """Returns the key of the bucket that an address shares: the address, or its network for IPv6."""
    if isinstance(address, IPv6Address):
        return f"{int(address) >> (128 - _SHARED_V6_BITS):x}"
    return str(address)


class FailedAttempts:
    """Failed authentications of one instance on one broker. Times are monotonic milliseconds."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[str | None, str], _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take_refusal_delay_ms(self, user: str | None, address: Address, now_ms: int) -> int:
        """Returns the delay with which an attempt is refused unchecked; 0 if it may be checked.

        Counts the refusal, so that the next delay is longer. In all methods `user` is None for credentials that name no
        user; then only the address counts.
        """
        delay_ms = 0
        for key in self._bucket_keys(user, address):
            bucket = self._buckets.get(key)
            if bucket is None:
                continue
            bucket.leak(now_ms)
            if bucket.is_full:
                delay_ms = max(
                    delay_ms, min(REFUSED_DELAY_MS_MIN << min(bucket.refused_in_a_row, 16), REFUSED_DELAY_MS_MAX)
                )
                bucket.refused_in_a_row += 1
        return delay_ms

    def record_failure(self, user: str | None, address: Address, now_ms: int) -> None:
        """Counts a failed attempt."""
        address_key, *user_keys = self._bucket_keys(user, address)
        self._add_failure(address_key, ADDRESS_FAILURES_BURST, ADDRESS_FAILURES_PER_MINUTE, now_ms)
        for user_key in user_keys:
            self._add_failure(user_key, USER_FAILURES_BURST, USER_FAILURES_PER_MINUTE, now_ms)

    def record_success(self, user: str | None, address: Address, *, was_counted: bool) -> None:
        """Clears the user's failures. With `was_counted` this attempt was counted by `record_failure` in advance.

        The other failures of the address stay, so that a client with one valid password cannot try others without
        limit.
        """
        address_key, *user_keys = self._bucket_keys(user, address)
        for user_key in user_keys:
            self._buckets.pop(user_key, None)
        bucket = self._buckets.get(address_key)
        if was_counted and bucket is not None:
            bucket.level = max(0.0, bucket.level - 1)

    @staticmethod
    def _bucket_keys(user: str | None, address: Address) -> tuple[tuple[str | None, str], ...]:
        """Returns the keys of an attempt's buckets, the address's first."""
        peer = peer_key(address)
        if user is None:
            return ((None, peer),)
        # Longer names belong to no user and share one bucket, so that they take no memory.
        return (None, peer), (user if len(user) <= USER_NAME_BYTES_MAX else "", peer)

    def _add_failure(self, key: tuple[str | None, str], burst: int, per_minute: int, now_ms: int) -> None:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = _Bucket(burst, per_minute, now_ms)
        else:
            bucket.leak(now_ms)
            self._buckets.move_to_end(key)
        if not bucket.is_full:
            bucket.refused_in_a_row = 0
        bucket.level += 1
