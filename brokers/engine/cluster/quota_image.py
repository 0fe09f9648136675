"""Client quotas as stored in ZooKeeper, looked up by the 8 levels of QUO-2. Names are the tenant's, instance by instance."""

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
