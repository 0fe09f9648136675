"""Read access to an instance's client quotas in the data plane, and to the quotas that apply to one client."""

from __future__ import annotations

from math import ceil

from quotas import explain, interfaces
from quotas.explain import EffectiveLimit
from quotas.interfaces import AddressQuota, ClientQuota, EntityPart, InstanceLike
from quotas.precedence import Entity

DEFAULT_NAME = "<default>"
# Kafka's default maximum size of a batch (`max.message.bytes`).
BATCH_BYTES = 1_048_588
BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")


def quota_list(instance: InstanceLike) -> list[ClientQuota]:
    """Returns all client quotas of an instance by level, then by name."""
    return sorted(interfaces.client_quotas.implementation.describe(instance.pk), key=_sort_key)


def quota_of(instance: InstanceLike, user: EntityPart | None, client_id: EntityPart | None) -> ClientQuota | None:
    """Returns the quota of exactly this entity, or None."""
    return next((quota for quota in quota_list(instance) if (quota.user, quota.client_id) == (user, client_id)), None)


def batch_delay_s(quota: ClientQuota) -> int:
    """Returns the delay in seconds after one batch of 1 MiB under the lower of the byte rates.

    It is 0 if no byte rate is below one batch a second. A rate of 0 blocks intentionally and is ignored here.
    """
    rates = [rate for key in BYTE_RATES if (rate := quota.limits.get(key)) is not None and 0 < rate < BATCH_BYTES]
    return ceil(BATCH_BYTES / min(rates)) if rates else 0


def address_quota_list(instance: InstanceLike) -> list[AddressQuota]:
    """Returns the limits of addresses, the default first."""
    return sorted(
        interfaces.client_quotas.implementation.describe_addresses(instance.pk),
        key=lambda quota: (quota.address is not None, quota.address or ""),
    )


def effective_quota(instance: InstanceLike, *, user: str, client_id: str) -> tuple[EffectiveLimit, ...]:
    """Returns the quotas of a client by quota key, with an explanation of every level."""
    limits = explain.limits_by_entity((entity_of(quota), quota.limits) for quota in quota_list(instance))
    return explain.explain(limits, user=user, client_id=client_id)


def entity_of(quota: ClientQuota) -> Entity:
    """Returns the entity of a quota in the form of `precedence`."""
    return Entity(
        quota.user is not None,
        quota.user.name if quota.user else None,
        quota.client_id is not None,
        quota.client_id.name if quota.client_id else None,
    )


def level_of(quota: ClientQuota) -> int:
    """Returns the level of an entity among the eight (QUO-2)."""
    kinds = tuple("none" if part is None else "default" if part.name is None else "name" for part in _parts(quota))
    return _LEVELS[kinds]


def entity_name(user: EntityPart | None, client_id: EntityPart | None) -> str:
    """Returns a name such as `users/alice/clients/<default>`, with the tenant's names."""
    parts = []
    for kind, part in (("users", user), ("clients", client_id)):
        if part is not None:
            parts += [kind, DEFAULT_NAME if part.name is None else part.name]
    return "/".join(parts)


def address_name(address: str | None) -> str:
    """Returns `ips/192.0.2.1` or `ips/<default>`."""
    return f"ips/{DEFAULT_NAME if address is None else address}"


_LEVELS: dict[tuple[str, ...], int] = {
    ("name", "name"): 1,
    ("name", "default"): 2,
    ("name", "none"): 3,
    ("default", "name"): 4,
    ("default", "default"): 5,
    ("default", "none"): 6,
    ("none", "name"): 7,
    ("none", "default"): 8,
}


def _parts(quota: ClientQuota) -> tuple[EntityPart | None, EntityPart | None]:
    return quota.user, quota.client_id


def _sort_key(quota: ClientQuota) -> tuple[int, str]:
    return level_of(quota), entity_name(quota.user, quota.client_id)
