"""Rows of instances, for tests of other objects."""

from __future__ import annotations

import itertools
from typing import Any

from instances.lifecycle.phases import Phase
from instances.models import Instance, Route
from instances.routes.kinds import DEFAULT_ROUTE, PLAINTEXT
from tenants.models import Tenant

# For tests that create an instance as a tenant would and connect to it without a user.
OPEN_ROUTES: tuple[dict[str, Any], ...] = ({"name": DEFAULT_ROUTE, "security": PLAINTEXT},)

_numbers = itertools.count(1)


def make_instance(tenant: Tenant, **fields: Any) -> Instance:
    """Creates a running instance of the smallest plan, without brokers."""
    defaults: dict[str, Any] = {
        "name": f"instance-{next(_numbers)}",
        "plan": "brook",
        "bandwidth_mb_s": 5,
        "storage_gb": 20,
        "partitions_max": 50,
        "phase": Phase.RUNNING.value,
        "observed_generation": 1,
        "endpoints": {"1": "127.0.0.1:19000"},
    }
    return with_open_route(Instance.objects.create(tenant=tenant, **(defaults | fields)))


def with_open_route(instance: Instance) -> Instance:
    """Adds a plaintext route."""
    Route.objects.create(instance=instance, name=DEFAULT_ROUTE, security=PLAINTEXT, endpoints=instance.endpoints)
    return instance
