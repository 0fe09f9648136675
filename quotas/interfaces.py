"""Interfaces that quotas needs from apps above it, which plug them in `AppConfig.ready`.

Dependencies between apps point in one direction only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tenants.actors import Actor
from tenants.interfaces import Interface
from tenants.models import Tenant


class InstanceLike(Protocol):
    """Attributes of an instance that quotas uses."""

    @property
    def pk(self) -> str: ...
    @property
    def tenant(self) -> Tenant: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPart:
    """Part of a quota entity that is present; a `name` of None is the default of its kind."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """Limits of one entity. An absent part (None) differs from a default part (`EntityPart(name=None)`).

    `limits` by key: `producer_byte_rate` and `consumer_byte_rate` in bytes/s, `request_percentage` in percent of a
    broker's event loop, `controller_mutation_rate` in partitions/s. The percentage applies to each broker (QUO-1); so
    do the others, unless the instance's `quota_scope` is `cluster`: then they apply to all brokers together.
    """

    user: EntityPart | None
    client_id: EntityPart | None
    limits: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressQuota:
    """Connections per second that each broker accepts from one address; None means unlimited.

    An `address` of None stands for every address without a limit of its own (QUO-52).
    """

    address: str | None
    connections_per_s: int | None


class ClientQuotaAdminClient(Protocol):
    """Client quotas of one instance in the data plane, by DescribeClientQuotas and AlterClientQuotas (QUO-71, QUO-72).

    All methods raise `tenants.errors.Unavailable` when no broker answers and `Invalid` when the broker refuses a value.
    """

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        """Returns all quotas of the instance except those of addresses."""
        ...

    def describe_addresses(self, instance_id: str) -> Sequence[AddressQuota]:
        """Returns the quotas of addresses."""
        ...

    def alter_address(
        self, instance_id: str, address: str | None, connections_per_s: int | None, *, validate_only: bool
    ) -> None:
        """Sets the limit of one address, or (None) of all others; without connections the limit is removed."""
        ...

    def alter(
        self,
        instance_id: str,
        user: EntityPart | None,
        client_id: EntityPart | None,
        limits: dict[str, float | None],
        *,
        validate_only: bool,
    ) -> None:
        """Sets the given limits of one entity; None removes a limit, absent limits do not change."""
        ...


# (acting, instance id) -> the instance; raises NotFound. Plugged by `instances`.
instance_access: Interface[Callable[[Actor, str], InstanceLike]] = Interface("quotas.interfaces.instance_access")
# (instance from `instance_access`): raises Conflict if it has no reachable brokers. Plugged by `instances`.
require_reachable: Interface[Callable[[Any], None]] = Interface("quotas.interfaces.require_reachable")
client_quotas: Interface[ClientQuotaAdminClient] = Interface("quotas.interfaces.client_quotas")
