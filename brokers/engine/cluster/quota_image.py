"""Client quotas as stored in ZooKeeper, looked up by the 8 levels of QUO-2. Names are the tenant's, instance by
instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT_NAME = None


class QuotaEntity(NamedTuple):
    """`has_user`/`has_client` tell which parts are named; a named part that is None is the instance's default."""

    has_user: bool
    user: str | None
    has_client: bool
    client_id: str | None


class QuotaMatch(NamedTuple):
    """`level` is 1 to 8 (QUO-2); counters are shared by all whom `entity` covers (QUO-3)."""

    limit: float
    level: int
    entity: QuotaEntity


@dataclass(frozen=True)
class QuotaImage:
    """instance id → entity → limit by quota name, e.g. {"producer_byte_rate": 1048576.0}."""

    entities: Mapping[str, Mapping[QuotaEntity, Mapping[str, float]]] = field(default_factory=dict)

    def of_instance(self, instance_id: str) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Everything stored for the instance, for DescribeClientQuotas and for building lookups."""
        return self.entities.get(instance_id, _NOTHING)

    def with_changes(self, changes: Mapping[tuple[str, QuotaEntity], Mapping[str, float]]) -> QuotaImage:
        """The next picture; an entity without limits is gone, and an instance without entities too."""
        entities = dict(self.entities)
        for (instance_id, entity), limits in changes.items():
            of_instance = {known: value for known, value in entities.get(instance_id, {}).items() if known != entity}
            if limits:
                of_instance[entity] = limits
            if of_instance:
                entities[instance_id] = of_instance
            else:
                entities.pop(instance_id, None)
        return QuotaImage(entities)


_NOTHING: Mapping[QuotaEntity, Mapping[str, float]] = {}
