"""Weights of instances and tenants on a broker's event loop, derived from their bandwidth."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from brokers.contract.loop_weights import HEAVIEST_BPS, LIGHTEST_BPS, TENANT_WEIGHT_MAX

# The weight grows with the bandwidth between these: the largest instance has 32 times the weight of the smallest.
INSTANCE_WEIGHT_MIN: Final = LIGHTEST_BPS / HEAVIEST_BPS
INSTANCE_WEIGHT_MAX: Final = 1.0


def weight_of(produce_bps: int, consume_bps: int) -> float:
    """Returns the weight of an instance with this bandwidth."""
    weight = max(produce_bps, consume_bps) / HEAVIEST_BPS
    return min(INSTANCE_WEIGHT_MAX, max(INSTANCE_WEIGHT_MIN, weight))


class LoopWeights:
    """Weights of a broker's instances, and of their tenants."""

    __slots__ = ("_instances", "_tenants")

    def __init__(self) -> None:
        # Tenant and weight by instance; weights of instances by tenant.
        self._instances: dict[str, tuple[str, float]] = {}
        self._tenants: dict[str, dict[str, float]] = {}

    def set(self, instance_id: str, tenant_id: str, weight: float) -> None:
        """Sets the tenant and the weight of an instance."""
        if self._instances.get(instance_id) != (tenant_id, weight):
            self.remove(instance_id)
            self._instances[instance_id] = tenant_id, weight
            self._tenants.setdefault(tenant_id, {})[instance_id] = weight

    def remove(self, instance_id: str) -> None:
        """Removes an instance, if it is known."""
        tenant_id, _ = self._instances.pop(instance_id, (None, 0.0))
        if tenant_id is None:
            return
        weights = self._tenants[tenant_id]
        del weights[instance_id]
        if not weights:
            del self._tenants[tenant_id]

    def siblings(self, instance_id: str) -> Collection[str]:
        """Returns the instances of an instance's tenant, itself included."""
        account = self._instances.get(instance_id)
        return (instance_id,) if account is None else self._tenants[account[0]]

    def of_instance(self, instance_id: str) -> float:
        """Returns the weight of an instance; the largest if it is unknown."""
        _, weight = self._instances.get(instance_id, ("", INSTANCE_WEIGHT_MAX))
        return weight

    def of_tenant(self, tenant_id: str) -> float:
        """Returns the weight of a tenant: the sum of its instances' weights, up to `TENANT_WEIGHT_MAX` times the
        largest of them; the largest weight if none of its instances is known.
        """
        weights = self._tenants.get(tenant_id)
        if weights is None:
            return INSTANCE_WEIGHT_MAX
        return min(sum(weights.values()), TENANT_WEIGHT_MAX * max(weights.values()))
