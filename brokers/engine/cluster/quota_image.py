"""Client quotas as stored in ZooKeeper, looked up by the 8 levels of QUO-2. Names are the tenant's, instance by
instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quotas import precedence
from quotas.precedence import Entity as QuotaEntity
from quotas.precedence import Match as QuotaMatch

__all__ = ["QuotaEntity", "QuotaImage", "QuotaMatch"]


@dataclass(frozen=True)
class QuotaImage:
    """instance id → entity → limit by quota name, e.g. {"producer_byte_rate": 1048576.0}."""

    entities: Mapping[str, Mapping[QuotaEntity, Mapping[str, float]]] = field(default_factory=dict)

    def of_instance(self, instance_id: str) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Everything stored for the instance, for DescribeClientQuotas and for building lookups."""
        return self.entities.get(instance_id, _NOTHING)

    def lookup(self, instance_id: str, quota: str, user: str, client_id: str) -> QuotaMatch | None:
        """The rule that applies to a client of the instance, at which level; None = unlimited."""
        return precedence.resolve(self.of_instance(instance_id), quota, user, client_id)

    def with_changes(self, changes: Mapping[tuple[str, QuotaEntity], Mapping[str, float]]) -> QuotaImage:
        """The next image; an entity without limits is gone, and an instance without entities too."""
        changed: dict[str, dict[QuotaEntity, Mapping[str, float]]] = {}
        for (instance_id, entity), limits in changes.items():
            of_instance = changed.get(instance_id)
            if of_instance is None:
                of_instance = changed[instance_id] = dict(self.entities.get(instance_id, {}))
            if limits:
                of_instance[entity] = limits
            else:
                of_instance.pop(entity, None)
        entities = {**self.entities, **changed}
        return QuotaImage({id: of_instance for id, of_instance in entities.items() if of_instance})

    def without(self, instance_ids: Iterable[str]) -> QuotaImage:
        """Instance ids are never used again, so what a deleted instance leaves behind may be forgotten."""
        gone = frozenset(instance_ids)
        return QuotaImage({id: limits for id, limits in self.entities.items() if id not in gone})


_NOTHING: Mapping[QuotaEntity, Mapping[str, float]] = {}
