"""Instances that wait for capacity: the list for operators, and the retry when capacity may have become available."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet

from brokers.limits import SWEEP_INSTANCES_MAX
from instances import interfaces
from instances.choices import Reason
from instances.lifecycle.phases import Phase
from instances.models import Instance


def waiting_instances() -> QuerySet[Instance]:
    """Returns the instances for which no cluster has capacity, the longest waiting first."""
    rows = Instance.objects.filter(phase=Phase.PROVISIONING.value, reason=Reason.NO_ROOM.value)
    return rows.select_related("tenant").order_by("phase_since", "pk")


def wake_waiting() -> None:
    """Enqueues the reconciliation of waiting instances on commit. The sweep also does so, a little later."""
    ids = list(waiting_instances().values_list("pk", flat=True)[:SWEEP_INSTANCES_MAX])
    transaction.on_commit(lambda: [interfaces.reconcile.implementation(instance_id) for instance_id in ids])
