"""Counting tries in the cache, with the sign-in library's counters: the one place that knows them.

Where the cache is lost, counting begins anew; nobody is refused for that.
"""

from __future__ import annotations

from allauth.core.internal import ratelimit
from allauth.core.internal.ratelimit import RateLimitUsage, truncate_ip
from django.http import HttpRequest

from tenants.requests import client_ip

APP = "penstock"


def count(request: HttpRequest, action: str, rate: str, key: str) -> RateLimitUsage | None:
    """Count one try under a key, rolled back if it did not fail; None where the rate (`5/300s`) is used up."""
    config = {action: f"{rate}/key"}
    return ratelimit.consume(request, app=APP, action=action, config=config, key=key, limit_get=True)


def forget(request: HttpRequest, action: str, rate: str, key: str) -> None:
    """Begin anew."""
    ratelimit.clear(request, app=APP, action=action, config={action: f"{rate}/key"}, key=key)


def network_of(request: HttpRequest) -> str:
    """Where a request comes from as far as counting goes: an IPv4 address, or the IPv6 network of one customer."""
    return str(truncate_ip(client_ip(request) or "unknown"))
