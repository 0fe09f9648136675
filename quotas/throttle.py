"""Delay of a client that exceeded a rate (QUO-14…17). Pure."""

from __future__ import annotations

from math import floor

from quotas.rates import Rate

DELAY_MS_MAX = 2**31 - 1


def delay_ms(rate: Rate, limit_per_s: float, now_ms: int) -> int:
    """Returns the delay in ms after which the rate is within the limit (QUO-14, QUO-15); 0 if it is already.

    The delay X solves O·W/(W+X) = T, rounded half up: O is the observed rate, W the window and T the limit. A limit of
    0 delays any positive amount by the whole window.
    """
    rate.measure(now_ms)
    window_ms = rate.window_ms
    total = rate.total * 1000
    if total <= limit_per_s * window_ms:
        return 0
    if limit_per_s <= 0:
        return min(rate.count * rate.width_ms, DELAY_MS_MAX)
    unbounded_ms = total / limit_per_s - window_ms
    return DELAY_MS_MAX if unbounded_ms >= DELAY_MS_MAX else floor(unbounded_ms + 0.5)


def charge(rate: Rate, amount: int, limit_per_s: float, now_ms: int) -> int:
    """Records `amount`, in bytes, and returns the resulting delay in ms (QUO-14)."""
    rate.record(amount, now_ms)
    return delay_ms(rate, limit_per_s, now_ms)


def fetch_cap_bytes(rate: Rate, limit_per_s: float) -> int:
    """Returns the maximum size in bytes of a response within the limit T with n samples of width w: T·(n-1)·w.

    See QUO-19.
    """
    return int(limit_per_s * (rate.count - 1) * rate.width_ms / 1000)
