"""First routes of an instance, and whether they require a user."""

from __future__ import annotations

from instances.models import Instance, Route
from instances.routes.kinds import WITH_SASL


def first_route(instance: Instance) -> Route | None:
    """Returns the first route, whose address is the instance's; None without routes."""
    return next(iter(instance.routes_in_order), None)


def sasl_route(instance: Instance) -> Route | None:
    """Returns the first route with SASL, or None."""
    return next((route for route in instance.routes_in_order if route.security in WITH_SASL), None)


def needs_user(instance: Instance) -> bool:
    """True if the first route requires a user."""
    first = first_route(instance)
    return first is not None and first.security in WITH_SASL
