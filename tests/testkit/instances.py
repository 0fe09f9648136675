"""Instances as rows, for tests of what stands around them."""

from __future__ import annotations

import itertools
from typing import Any

from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.models import Tenant

_numbers = itertools.count(1)


def make_instance(tenant: Tenant, **fields: Any) -> Instance:
    """A running instance of the smallest plan, without brokers behind it."""
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
    return Instance.objects.create(tenant=tenant, **(defaults | fields))
