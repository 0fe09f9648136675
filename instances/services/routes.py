"""Creation, change and deletion of routes. Callers lock the instance by `access.instance(lock=True)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from instances.access import require_changeable
from instances.choices import OperationType
from instances.models import Instance, Operation, Route
from instances.routes.kinds import PLAINTEXT, ROUTES_MAX
from instances.routes.validation import CONFIRM_PLAINTEXT, audited_route_fields, name_taken_error, validated_columns
from instances.services.changing import publish_change
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message, QuotaExceeded


@transaction.atomic
def create_route(
    *, acting: Actor, instance: Instance, route: Mapping[str, Any], dry_run: bool = False
) -> tuple[Route, Operation]:
    """Creates a route. `route` has `name` and `security`, and may have `allow_list`, `advertised_host`,
    `connections_max`, `proxies` and `confirm_plaintext`. Raises `Conflict`, `Invalid` and `QuotaExceeded`.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    existing = instance.routes.all()
    if len(existing) >= ROUTES_MAX:
        raise QuotaExceeded(Message(gettext_noop("An instance has at most %(n)s routes."), n=ROUTES_MAX))
    if any(other.name == route["name"] for other in existing):
        raise name_taken_error("/name")
    row = Route.objects.create(instance=instance, **validated_columns(route, ""))
    return row, _publish(acting, instance, "route.created", (None, audited_route_fields(row)), dry_run=dry_run)


@transaction.atomic
def update_route(
    *, acting: Actor, instance: Instance, route: Route, changes: Mapping[str, Any], dry_run: bool = False
) -> Operation | None:
    """Changes the given fields of a route; returns None if nothing differs. Another security closes the route's
    connections, another allow-list those that it does not admit. Raises the errors of `create_route`.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    before = audited_route_fields(route)
    columns = validated_columns(_confirmed(route, changes), "")
    for name, value in columns.items():
        setattr(route, name, value)
    after = audited_route_fields(route)
    if before == after:
        return None
    route.save(update_fields=list(columns))
    return _publish(acting, instance, "route.changed", audit.difference(before, after), dry_run=dry_run)


def _confirmed(route: Route, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Adds the confirmation to changes of a route that is plaintext already."""
    return {**changes, CONFIRM_PLAINTEXT: True} if route.security == PLAINTEXT else changes


@transaction.atomic
def delete_route(*, acting: Actor, instance: Instance, route: Route, dry_run: bool = False) -> Operation:
    """Deletes a route and closes its connections. Raises `Conflict` for the only route."""
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    if instance.routes.count() <= 1:
        raise Conflict("This is the instance's only route. Open another one first.", code="last_route")
    before = audited_route_fields(route)
    route.delete()
    first = instance.routes.order_by("pk").first()
    assert first is not None, "the last route is not deleted"
    instance.endpoints = first.endpoints
    return _publish(acting, instance, "route.deleted", (before, None), fields=["endpoints"], dry_run=dry_run)


def _publish(
    acting: Actor,
    instance: Instance,
    action: str,
    changes: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    *,
    fields: list[str] | None = None,
    dry_run: bool,
) -> Operation:
    return publish_change(acting, instance, OperationType.ROUTES, action, changes, fields=fields or (), dry_run=dry_run)
