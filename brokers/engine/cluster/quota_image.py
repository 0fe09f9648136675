"""Client quotas as stored in ZooKeeper, looked up by the 8 levels of QUO-2. Names are the tenant's, instance by
instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from brokers.contract import paths
from brokers.contract.instance_limits import NODE_BYTES
from quotas import precedence
from quotas.precedence import Entity as QuotaEntity
from quotas.precedence import Match as QuotaMatch

__all__ = ["QuotaEntity", "QuotaImage", "QuotaMatch"]


# What is in the document of an entity without limits, and in a limit with its name and at most 25 digits.
EMPTY_BYTES: Final = 40
LIMIT_BYTES: Final = 60


@dataclass(frozen=True)
class QuotaImage:
    """instance id → entity → limit by quota name, e.g. {"producer_byte_rate": 1048576.0}."""

    entities: Mapping[str, Mapping[QuotaEntity, Mapping[str, float]]] = field(default_factory=dict)
    # Of each instance with entities: what they weigh (`weight_of`).
    weights: Mapping[str, int] = field(default_factory=dict, compare=False)

    def of_instance(self, instance_id: str) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Everything stored for the instance, for DescribeClientQuotas and for building lookups."""
        return self.entities.get(instance_id, _NOTHING)

    def lookup(self, instance_id: str, quota: str, user: str, client_id: str) -> QuotaMatch | None:
        """The rule that applies to a client of the instance, at which level; None = unlimited."""
        return precedence.resolve(self.of_instance(instance_id), quota, user, client_id)

    def with_changes(self, changes: Mapping[tuple[str, QuotaEntity], Mapping[str, float]]) -> QuotaImage:
        """The next image; an entity without limits is gone, and an instance without entities too."""
        changed: dict[str, dict[QuotaEntity, Mapping[str, float]]] = {}
        weights = dict(self.weights)
        for (instance_id, entity), limits in changes.items():
            of_instance = changed.get(instance_id)
            if of_instance is None:
                of_instance = changed[instance_id] = dict(self.entities.get(instance_id, {}))
            added = weight_of(instance_id, entity, limits) - weight_of(instance_id, entity, of_instance.get(entity, {}))
            weights[instance_id] = weights.get(instance_id, 0) + added
            if limits:
                of_instance[entity] = limits
            else:
                of_instance.pop(entity, None)
        entities = {**self.entities, **changed}
        return QuotaImage({id: of_instance for id, of_instance in entities.items() if of_instance}, weights)

    def without(self, instance_ids: Iterable[str]) -> QuotaImage:
        """Instance ids are never used again, so what a deleted instance leaves behind may be forgotten."""
        gone = frozenset(instance_ids)
        return QuotaImage(
            {id: limits for id, limits in self.entities.items() if id not in gone},
            {id: weight for id, weight in self.weights.items() if id not in gone},
        )


def weight_of(instance_id: str, entity: QuotaEntity, limits: Mapping[str, float]) -> int:
    """What an entity with these limits weighs in ZooKeeper: paths and documents. Nothing without limits."""
    if not limits:
        return 0
    path = paths.quota_entity(
        instance_id, entity.user, entity.client_id, has_user=entity.has_user, has_client=entity.has_client
    )
    # A user with clients has a node of its own and one above its clients.
    nodes = 3 if entity.has_user and entity.has_client else 1
    return nodes * (len(path) + EMPTY_BYTES + NODE_BYTES) + LIMIT_BYTES * len(limits)


_NOTHING: Mapping[QuotaEntity, Mapping[str, float]] = {}
