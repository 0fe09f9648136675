"""Whether clients of an instance sign in with a user."""

from __future__ import annotations

from instances.models import Instance, Route
from instances.routes.kinds import WITH_SASL


def first_route(instance: Instance) -> Route | None:
    """The route whose address is the instance's. An instance without routes is open."""
    return next(iter(instance.routes_in_order), None)


def sasl_route(instance: Instance) -> Route | None:
    """The first route by which users sign in; None where nobody can."""
    return next((route for route in instance.routes_in_order if route.security in WITH_SASL), None)


def needs_user(instance: Instance) -> bool:
    """Whether the instance's own address works for signed-in users alone."""
    first = first_route(instance)
    return first is not None and first.security in WITH_SASL
