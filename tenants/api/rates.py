"""Rate limits of the API, counted in Redis per token (or user, or address) and per tenant in windows of a minute.

If Redis is unavailable, no request is refused (the counters only protect the service), and Redis is not called for a
few seconds, so that an outage costs one timeout instead of one per request.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import cache

import redis
from django.conf import settings
from django.utils.translation import gettext_noop

from tenants import limits
from tenants.actors import Actor
from tenants.errors import RateLimited

logger = logging.getLogger(__name__)

WINDOW_S = 60
REDIS_TIMEOUT_S = 0.25
REDIS_RETRY_INTERVAL_S = 5.0
KEY_PREFIX = "penstock:api-rate:"

# Counts, starts the window with the first request, and returns its remaining time, in one step.
_COUNT = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local left_ms = redis.call('PTTL', KEYS[1])
if left_ms < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) left_ms = tonumber(ARGV[1]) end
return {count, left_ms}
"""


@dataclass(frozen=True, slots=True)
class LimitState:
    """State of a caller's limit: `remaining` requests in the next `reset_s` seconds."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool

    def headers(self) -> dict[str, str]:
        """Returns relative headers, which do not depend on synchronised clocks."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_s),
        }


class Counter:
    """Counts requests in Redis. `count` returns None if Redis does not answer."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_connect_timeout=REDIS_TIMEOUT_S, socket_timeout=REDIS_TIMEOUT_S)
        self._script = self._client.register_script(_COUNT)
        self._retry_at_s = 0.0
        self._lock = threading.Lock()

    def count(self, name: str, limit: int) -> LimitState | None:
        """Charges one request to `name`."""
        if time.monotonic() < self._retry_at_s:
            return None
        try:
            count, left_ms = self._script(keys=[KEY_PREFIX + name], args=[WINDOW_S * 1000])
        except (redis.RedisError, OSError):
            with self._lock:
                self._retry_at_s = time.monotonic() + REDIS_RETRY_INTERVAL_S
            logger.warning("rate limits are off: redis does not answer")
            return None
        reset_s = max(1, -(-int(left_ms) // 1000))
        return LimitState(
            limit=limit, remaining=max(0, limit - int(count)), reset_s=reset_s, is_exceeded=int(count) > limit
        )


@cache
def counter(url: str) -> Counter:
    """Returns the process's counter for a Redis URL."""
    return Counter(url)


def charge(identity: str, *, is_anonymous: bool, is_write: bool) -> LimitState | None:
    """Charges a request to its caller; None if limits are off or Redis is unavailable."""
    if not getattr(settings, "API_RATE_LIMITS", True):
        return None
    if is_anonymous:
        kind, limit = "anonymous", limits.API_ANONYMOUS_PER_MINUTE_MAX
    elif is_write:
        kind, limit = "write", limits.API_WRITES_PER_MINUTE_MAX
    else:
        kind, limit = "read", limits.API_READS_PER_MINUTE_MAX
    return charge_counter(f"{kind}:{identity}", limit)


def charge_write(acting: Actor) -> None:
    """Charges a change made in the console like one made over the API. Raises `RateLimited`."""
    rate = charge(acting.id, is_anonymous=False, is_write=True)
    if rate is not None and rate.is_exceeded:
        raise RateLimited(
            gettext_noop("Too many changes in a minute. Wait before the next one."), retry_after_s=rate.reset_s
        )


def charge_tenant(tenant_id: str, *, is_write: bool) -> LimitState | None:
    """Charges a request to its tenant, regardless of the token or member that sent it."""
    limit = limits.API_TENANT_WRITES_PER_MINUTE_MAX if is_write else limits.API_TENANT_READS_PER_MINUTE_MAX
    return charge_counter(f"tenant-{'write' if is_write else 'read'}:{tenant_id}", limit)


def tighter(first: LimitState | None, second: LimitState | None) -> LimitState | None:
    """Returns an exceeded limit, or else that with fewer remaining requests; None if neither is counted."""
    counted_rates = [rate for rate in (first, second) if rate is not None]
    return min(counted_rates, key=lambda rate: (not rate.is_exceeded, rate.remaining), default=None)


def charge_counter(name: str, limit: int) -> LimitState | None:
    """Charges one event to the counter `name` of `limit` events a minute; None if limits are off or Redis is
    unavailable.
    """
    if not getattr(settings, "API_RATE_LIMITS", True):
        return None
    return counter(settings.REDIS_URL).count(name, limit)
