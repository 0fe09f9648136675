"""Counting of attempts in the cache with the sign-in library's counters, which only this module uses.

If the cache is lost, counting restarts; no request is refused because of that.
"""

from __future__ import annotations

from allauth.core.internal import ratelimit
from allauth.core.internal.ratelimit import RateLimitUsage, truncate_ip
from django.http import HttpRequest

from tenants.requests import client_ip

APP = "penstock"


def count(request: HttpRequest, action: str, rate: str, key: str) -> RateLimitUsage | None:
    """Counts an attempt under a key. Returns None if the rate (`5/300s`) is exhausted.

    The caller rolls the returned usage back if only failures count and the attempt has succeeded.
    """
    config = {action: f"{rate}/key"}
    return ratelimit.consume(request, app=APP, action=action, config=config, key=key, limit_get=True)


def reset(request: HttpRequest, action: str, rate: str, key: str) -> None:
    """Resets a counter."""
    ratelimit.clear(request, app=APP, action=action, config={action: f"{rate}/key"}, key=key)


def network_of(request: HttpRequest) -> str:
    """Returns the network of a request for counting: an IPv4 address, or the IPv6 network of one customer."""
    return str(truncate_ip(client_ip(request) or "unknown"))
