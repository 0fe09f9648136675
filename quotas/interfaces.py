"""What quotas needs of the apps above it, as interfaces they plug from `AppConfig.ready` (apps lean one way)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tenants.actors import Actor
from tenants.interfaces import Interface
from tenants.models import Tenant


class InstanceLike(Protocol):
    """The little that quotas has to know of an instance."""

    @property
    def pk(self) -> str: ...
    @property
    def tenant(self) -> Tenant: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPart:
    """One part of a quota entity that is present; `name` None is the default of its kind."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The limits set for one entity. An absent part (None) is not the same as a default part (`EntityPart(name=None)`).

    `limits` by key: `producer_byte_rate` and `consumer_byte_rate` in bytes/s, `request_percentage` in percent of a
    broker's event loop, `controller_mutation_rate` in partitions/s. The percentage holds on each broker (QUO-1), and so
    do the others unless the instance's `quota_scope` is `cluster`: then over all brokers together.
    """

    user: EntityPart | None
    client_id: EntityPart | None
    limits: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressQuota:
    """How many connections a second each broker lets in from one address, None where it has no limit; `address` None:
    from each that has none of its own (QUO-52).
    """

    address: str | None
    connections_per_s: int | None


class ClientQuotaAdminClient(Protocol):
    """Client quotas of one instance in the data plane, by DescribeClientQuotas and AlterClientQuotas (QUO-71, QUO-72).

    All raise `tenants.errors.Unavailable` when no broker answers and `Invalid` when the broker refuses a value.
    """

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        """Every quota of the instance but those of addresses."""
        ...

    def describe_addresses(self, instance_id: str) -> Sequence[AddressQuota]:
        """Those of addresses."""
        ...

    def alter_address(
        self, instance_id: str, address: str | None, connections_per_s: int | None, *, validate_only: bool
    ) -> None:
        """Set the limit of one address, or (None) of all others; without connections it is removed."""
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
        """Set the given limits of one entity; None removes one, absent ones stay as they are."""
        ...


# (acting, instance id) -> the instance, or NotFound; plugged by `instances`.
instance_access: Interface[Callable[[Actor, str], InstanceLike]] = Interface("quotas.interfaces.instance_access")
# (an instance that `instance_access` gave): raises Conflict where it has no brokers to ask; plugged by `instances`.
require_reachable: Interface[Callable[[Any], None]] = Interface("quotas.interfaces.require_reachable")
client_quotas: Interface[ClientQuotaAdminClient] = Interface("quotas.interfaces.client_quotas")
