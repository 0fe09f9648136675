"""What tenants needs of the apps above it, as interfaces they plug from `AppConfig.ready` (apps lean one way)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tenants.actors import Actor
from tenants.models import Tenant

Plugged = TypeVar("Plugged")


class Interface(Generic[Plugged]):
    """A socket for one implementation, plugged once at start."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._plugged: Plugged | None = None

    def plug(self, implementation: Plugged) -> None:
        """Called from the `AppConfig.ready` of the app that implements it; a test may plug its own."""
        self._plugged = implementation

    @property
    def it(self) -> Plugged:
        """The implementation."""
        assert self._plugged is not None, f"nothing is plugged into {self.name}: is the app above installed?"
        return self._plugged


class TenantInstances(Protocol):
    """The instances of a tenant follow it, in the transaction that changes the tenant. It is locked and changed."""

    def suspend(self, *, tenant: Tenant, acting: Actor) -> None:
        """Suspend what runs."""
        ...

    def resume(self, *, tenant: Tenant, acting: Actor) -> None:
        """Resume what was suspended with the tenant."""
        ...


class PageInstance(Protocol):
    """Identity of an instance, for the menu of its pages."""

    pk: str
    name: str


# Plugged by `instances`. (who looks, an instance's id): the instance, or `NotFound`.
page_instance: Interface[Callable[[Actor, str], PageInstance]] = Interface("tenants.interfaces.page_instance")
tenant_instances: Interface[TenantInstances] = Interface("tenants.interfaces.tenant_instances")
