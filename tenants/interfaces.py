"""Interfaces that tenants needs from apps above it, which plug them in `AppConfig.ready`.

Dependencies between apps point in one direction only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tenants.actors import Actor
from tenants.models import Tenant

Plugged = TypeVar("Plugged")


class Interface(Generic[Plugged]):
    """Interface with one implementation, which is plugged at start."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._plugged: Plugged | None = None

    def plug(self, implementation: Plugged) -> None:
        """Sets the implementation; called by the `AppConfig.ready` of the implementing app, or by a test."""
        self._plugged = implementation

    @property
    def implementation(self) -> Plugged:
        """Implementation that was plugged."""
        assert self._plugged is not None, f"nothing is plugged into {self.name}: is the app above installed?"
        return self._plugged


class TenantInstances(Protocol):
    """Actions on the instances of a tenant, in the transaction that changes the locked tenant."""

    def suspend(self, *, tenant: Tenant, acting: Actor) -> None:
        """Suspends running instances."""
        ...

    def resume(self, *, tenant: Tenant, acting: Actor) -> None:
        """Resumes instances that were suspended with the tenant."""
        ...


class PageInstance(Protocol):
    """Identity of an instance for the menu of its pages."""

    pk: str
    name: str


# Plugged by `instances`. (actor, instance id) -> the instance; raises `NotFound`.
page_instance: Interface[Callable[[Actor, str], PageInstance]] = Interface("tenants.interfaces.page_instance")
tenant_instances: Interface[TenantInstances] = Interface("tenants.interfaces.tenant_instances")
