"""Access to the instances and operations of an actor's tenant. Ids that are unknown or of another tenant, and deleted
instances, all raise `NotFound`.
"""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from instances.lifecycle.phases import CHANGEABLE, REACHABLE, Phase
from instances.models import Instance, Operation, Route
from tenants.access import fetch, tenant_of
from tenants.actors import Actor
from tenants.choices import ActorKind
from tenants.errors import Conflict, Message
from tenants.ids import is_id
from tenants.models import Tenant


def instances_of(tenant: Tenant) -> QuerySet[Instance]:
    """Returns a tenant's instances, including those being deleted, without deleted ones."""
    return Instance.objects.filter(tenant=tenant).exclude(phase=Phase.DELETED.value)


def names_of(tenant: Tenant) -> dict[str, str]:
    """Returns the names of the tenant's instances, by id."""
    return dict(instances_of(tenant).order_by("name").values_list("pk", "name"))


def instance(acting: Actor, instance_id: str, *, lock: bool = False) -> Instance:
    """Returns an instance of the actor's tenant; for the system, and for an operator who works across tenants, an
    instance of any tenant. `lock` locks its row until the transaction ends.
    """
    if acting.tenant is None and acting.kind in (ActorKind.SYSTEM, ActorKind.OPERATOR):
        rows = Instance.objects.exclude(phase=Phase.DELETED.value)
    else:
        rows = instances_of(tenant_of(acting))
    valid_id = instance_id if is_id(instance_id, "ins") else ""
    return fetch(rows.select_related("tenant"), lock=lock, pk=valid_id)


def route(row: Instance, name: str) -> Route:
    """Returns a route, by its name, of an instance that was fetched for the actor."""
    return fetch(row.routes.all(), name=name)


def operation(acting: Actor, operation_id: str) -> Operation:
    """Returns one operation of the actor's tenant."""
    rows = Operation.objects.filter(tenant=tenant_of(acting)).select_related("instance")
    return fetch(rows, pk=operation_id if is_id(operation_id, "op") else "")


def require_reachable(row: Instance) -> None:
    """Raises `Conflict` while the instance has no brokers to query (being created, failed, being deleted)."""
    if row.current_phase not in REACHABLE:
        raise Conflict(
            Message(gettext_noop("The instance is %(phase)s."), phase=row.phase), code="instance_not_reachable"
        )


def require_changeable(row: Instance) -> None:
    """Raises `Conflict` unless size, name and settings may be changed in this phase."""
    if row.current_phase not in CHANGEABLE:
        raise Conflict(
            Message(gettext_noop("The instance is %(phase)s."), phase=row.phase), code="instance_not_changeable"
        )
