"""Mistakes that were thought of while the scheduler was written; the simulator has to find each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from brokers.engine.scheduling.fair_queue import FairQueue
from brokers.engine.scheduling.fair_turns import FairTurns, InstanceLoopQueue, TenantTurns

Plant = Callable[[pytest.MonkeyPatch], None]


def charge_instances_alone(patch: pytest.MonkeyPatch) -> None:
    """A tenant pays nothing for what its instances use, so that its instances decide its part."""

    def charge(self: FairQueue[Any], instance: Any, cost: float) -> None:
        if not instance.items:
            instance.tenant.instances.catch_up(instance)
        instance.credit -= cost

    patch.setattr(FairQueue, "charge", charge)


def forget_weights(patch: pytest.MonkeyPatch) -> None:
    """All have the same part, whatever they bought."""

    def set_weights(self: FairTurns, line: InstanceLoopQueue, weight: float, tenant_weight: float) -> None:
        """Changes nothing."""

    patch.setattr(FairTurns, "set_weights", set_weights)


def forget_that_a_tenant_is_known(patch: pytest.MonkeyPatch) -> None:
    """Each instance is a tenant of its own."""

    def enter(self: FairTurns, tenant_id: str) -> TenantTurns:
        self._tenants[tenant_id] = tenant = TenantTurns(tenant_id)
        tenant.instance_count = 1
        return tenant

    patch.setattr(FairTurns, "register_instance", enter)


def stop_after_one_turn(patch: pytest.MonkeyPatch) -> None:
    """The queue is not served again after a turn of the loop, until another socket queues."""
    schedule = FairTurns._schedule

    def once(self: FairTurns) -> None:
        if not self._is_scheduled and len(self.queue) > 2:
            return
        schedule(self)

    patch.setattr(FairTurns, "_schedule", once)


def serve_until_nothing_is_queued(patch: pytest.MonkeyPatch) -> None:
    """A turn of the queue has no end, so that sockets that need not queue wait for those that do."""
    patch.setattr(FairTurns, "turn_s", lambda self, now_s: 0.2)


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        charge_instances_alone, forget_weights, forget_that_a_tenant_is_known, stop_after_one_turn,
        serve_until_nothing_is_queued,
    )
}  # fmt: skip
