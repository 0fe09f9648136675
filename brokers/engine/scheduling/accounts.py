"""Accounts of instances that are queued in a `FairQueue`, and of their tenants.

An account is created when its instance is first queued, and remains until the queue is empty: an instance that is
queued again meanwhile still has its debt. An empty queue has no accounts, so the memory is bounded by the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue, TenantAccount

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ownership:
    """Tenants of instances: `tenant_of` returns the id of an instance's tenant, `weights_of` the weights of an instance
    and of its tenant. By default each instance is its own tenant, and all weigh the same.
    """

    tenant_of: Callable[[str], str] = lambda instance_id: instance_id
    weights_of: Callable[[str, str], tuple[float, float]] = lambda _instance_id, _tenant_id: (1.0, 1.0)


class InstanceAccounts(Generic[T]):
    """Accounts of the instances in one queue, whose rounds grant `quantum`."""

    __slots__ = ("_instances", "_ownership", "_quantum", "_tenants")

    def __init__(self, quantum: float, ownership: Ownership) -> None:
        self._quantum = quantum
        self._ownership = ownership
        self._instances: dict[str, InstanceQueue[T]] = {}
        self._tenants: dict[str, TenantAccount] = {}

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, instance_id: str) -> InstanceQueue[T] | None:
        """Returns the account of an instance if there is one."""
        return self._instances.get(instance_id)

    def account_to_enqueue(self, instance_id: str) -> InstanceQueue[T]:
        """Returns the account of an instance, with its current tenant and weights unless it is already queued."""
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = InstanceQueue(self._tenant(instance_id), instance_id)
        if not instance.items:
            self.refresh(instance)
        return instance

    def refresh(self, instance: InstanceQueue[T]) -> None:
        """Updates the tenant and the weights of an account that is not in the queue."""
        tenant = instance.tenant = self._tenant(instance.key)
        instance.weight, tenant.weight = self._ownership.weights_of(instance.key, tenant.key)

    def forget_idle(self, queue: FairQueue[T]) -> None:
        """Drops the accounts when nothing is queued, except those of suspended instances, which have items."""
        if not len(queue):
            self._instances = {key: instance for key, instance in self._instances.items() if instance.items}
            self._tenants.clear()

    def _tenant(self, instance_id: str) -> TenantAccount:
        tenant_id = self._ownership.tenant_of(instance_id)
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = TenantAccount(self._quantum, tenant_id)
        return tenant
