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

    __slots__ = ("_tenant_and_weight_by_instance", "_weights_by_tenant")

    def __init__(self) -> None:
        self._tenant_and_weight_by_instance: dict[str, tuple[str, float]] = {}
        self._weights_by_tenant: dict[str, dict[str, float]] = {}

    def set(self, instance_id: str, tenant_id: str, weight: float) -> None:
        """Sets the tenant and the weight of an instance."""
        if self._tenant_and_weight_by_instance.get(instance_id) != (tenant_id, weight):
            self.remove(instance_id)
            self._tenant_and_weight_by_instance[instance_id] = tenant_id, weight
            self._weights_by_tenant.setdefault(tenant_id, {})[instance_id] = weight

    def remove(self, instance_id: str) -> None:
        """Removes an instance, if it is known."""
        tenant_id, _ = self._tenant_and_weight_by_instance.pop(instance_id, (None, 0.0))
        if tenant_id is None:
            return
        weights = self._weights_by_tenant[tenant_id]
        del weights[instance_id]
        if not weights:
            del self._weights_by_tenant[tenant_id]

    def tenant_instances(self, instance_id: str) -> Collection[str]:
        """Returns the instances of an instance's tenant, itself included."""
        account = self._tenant_and_weight_by_instance.get(instance_id)
        return (instance_id,) if account is None else self._weights_by_tenant[account[0]]

    def instance_weight(self, instance_id: str) -> float:
        """Returns the weight of an instance; the largest if it is unknown."""
        _, weight = self._tenant_and_weight_by_instance.get(instance_id, ("", INSTANCE_WEIGHT_MAX))
        return weight

    def tenant_weight(self, tenant_id: str) -> float:
        """Returns the weight of a tenant: the sum of its instances' weights, up to `TENANT_WEIGHT_MAX` times the
        largest of them; the largest weight if none of its instances is known.
        """
        weights = self._weights_by_tenant.get(tenant_id)
        if weights is None:
            return INSTANCE_WEIGHT_MAX
        return min(sum(weights.values()), TENANT_WEIGHT_MAX * max(weights.values()))
