"""Client quotas as stored in ZooKeeper, with lookups by Kafka's 8 levels of precedence (QUO-2), and limits of IP
addresses.

Entities have the tenant's names of users and clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from brokers.contract import paths
from brokers.contract.instance_limits import NODE_BYTES
from quotas import precedence
from quotas.addresses import CONNECTION_CREATION_RATE, IpEntity
from quotas.precedence import Entity as QuotaEntity
from quotas.precedence import Match as QuotaMatch

__all__ = ["AnyEntity", "IpEntity", "QuotaEntity", "QuotaImage", "QuotaMatch"]

# All entities that may have limits.
AnyEntity = QuotaEntity | IpEntity
E = TypeVar("E", QuotaEntity, IpEntity)

# Size of the document of an entity without limits, and of a limit with its name and at most 25 digits.
EMPTY_BYTES: Final = 40
LIMIT_BYTES: Final = 60


@dataclass(frozen=True)
class QuotaImage:
    """Limits of all instances' clients; values are shared between images and never modified."""

    # Instance id -> entity -> limit by quota name, e.g. {"producer_byte_rate": 1048576.0}.
    entities: Mapping[str, Mapping[QuotaEntity, Mapping[str, float]]] = field(default_factory=dict)
    # Instance id -> IP address entity -> limit by quota name.
    addresses: Mapping[str, Mapping[IpEntity, Mapping[str, float]]] = field(default_factory=dict)
    # Size in bytes (`stored_bytes_of`) by instance id, for instances with entities.
    stored_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)

    def of_instance(self, instance_id: str) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Returns the client quotas of the instance, for DescribeClientQuotas and for building lookups."""
        return self.entities.get(instance_id, _NOTHING)

    def of_addresses(self, instance_id: str) -> Mapping[IpEntity, Mapping[str, float]]:
        """Returns the limits of IP addresses of the instance's clients."""
        return self.addresses.get(instance_id, _NO_ADDRESSES)

    def limits(self, instance_id: str, entity: AnyEntity) -> Mapping[str, float]:
        """Returns the limits of exactly this entity."""
        if isinstance(entity, IpEntity):
            return self.of_addresses(instance_id).get(entity, _UNLIMITED)
        return self.of_instance(instance_id).get(entity, _UNLIMITED)

    def count(self, instance_id: str) -> int:
        """Returns the number of entities of the instance with limits."""
        return len(self.of_instance(instance_id)) + len(self.of_addresses(instance_id))

    def connections_per_s(self, instance_id: str, address: IpEntity) -> float | None:
        """Returns the allowed connections per second from a client's address, None without a limit (QUO-52)."""
        limits = self.addresses.get(instance_id)
        if limits is None:
            return None
        limit = limits.get(address, _UNLIMITED).get(CONNECTION_CREATION_RATE)
        return limits.get(_ANY_ADDRESS, _UNLIMITED).get(CONNECTION_CREATION_RATE) if limit is None else limit

    def lookup(self, instance_id: str, quota: str, user: str, client_id: str) -> QuotaMatch | None:
        """Returns the limit that applies to a client of the instance, and its level; None without a limit."""
        return precedence.resolve(self.of_instance(instance_id), quota, user, client_id)

    def with_changes(self, changes: Mapping[tuple[str, AnyEntity], Mapping[str, float]]) -> QuotaImage:
        """Returns the next image; entities without limits and instances without entities are removed."""
        clients: dict[tuple[str, QuotaEntity], Mapping[str, float]] = {}
        addresses: dict[tuple[str, IpEntity], Mapping[str, float]] = {}
        stored_bytes = dict(self.stored_bytes)
        for (instance_id, entity), limits in changes.items():
            before = self.limits(instance_id, entity)
            added = stored_bytes_of(instance_id, entity, limits) - stored_bytes_of(instance_id, entity, before)
            stored_bytes[instance_id] = stored_bytes.get(instance_id, 0) + added
            if isinstance(entity, IpEntity):
                addresses[instance_id, entity] = limits
            else:
                clients[instance_id, entity] = limits
        return QuotaImage(_merge(self.entities, clients), _merge(self.addresses, addresses), stored_bytes)

    def without(self, instance_ids: Iterable[str]) -> QuotaImage:
        """Returns the next image, without deleted instances, whose ids are never reused."""
        deleted = frozenset(instance_ids)
        return QuotaImage(
            {id: limits for id, limits in self.entities.items() if id not in deleted},
            {id: limits for id, limits in self.addresses.items() if id not in deleted},
            {id: size for id, size in self.stored_bytes.items() if id not in deleted},
        )


def _merge(
    before: Mapping[str, Mapping[E, Mapping[str, float]]], changes: Mapping[tuple[str, E], Mapping[str, float]]
) -> Mapping[str, Mapping[E, Mapping[str, float]]]:
    """Returns the entities by instance; instances without changes have the same objects as before."""
    if not changes:
        return before
    changed: dict[str, dict[E, Mapping[str, float]]] = {}
    for (instance_id, entity), limits in changes.items():
        of_instance = changed.get(instance_id)
        if of_instance is None:
            of_instance = changed[instance_id] = dict(before.get(instance_id, {}))
        if limits:
            of_instance[entity] = limits
        else:
            of_instance.pop(entity, None)
    return {id: of_instance for id, of_instance in {**before, **changed}.items() if of_instance}


def path_of(instance_id: str, entity: AnyEntity) -> str:
    """Returns the path of the entity below `/config`."""
    if isinstance(entity, IpEntity):
        return paths.ip_quota_entity(instance_id, entity.address)
    return paths.quota_entity(
        instance_id, entity.user, entity.client_id, has_user=entity.has_user, has_client=entity.has_client
    )


def stored_bytes_of(instance_id: str, entity: AnyEntity, limits: Mapping[str, float]) -> int:
    """Returns the size of an entity with these limits in ZooKeeper, paths and documents; 0 without limits."""
    if not limits:
        return 0
    # A (user, client) pair also needs the node of the user, and the node above the user's clients.
    nodes = 3 if isinstance(entity, QuotaEntity) and entity.has_user and entity.has_client else 1
    return nodes * (len(path_of(instance_id, entity)) + EMPTY_BYTES + NODE_BYTES) + LIMIT_BYTES * len(limits)


_NOTHING: Mapping[QuotaEntity, Mapping[str, float]] = {}
_NO_ADDRESSES: Mapping[IpEntity, Mapping[str, float]] = {}
_UNLIMITED: Mapping[str, float] = {}
_ANY_ADDRESS: Final = IpEntity(None)
