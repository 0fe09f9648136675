"""Client quotas written by this broker that its image does not show yet.

They count against the instance's limit of entities, because otherwise one request with many would see free capacity for
each.
"""

from __future__ import annotations

from collections.abc import Mapping

from brokers.contract.instance_limits import QUOTA_BYTES_MAX, QUOTA_ENTITIES_MAX
from brokers.engine.cluster import errors
from brokers.engine.cluster.quota_image import AnyEntity, QuotaImage, stored_bytes_of


class InFlightQuotas:
    """Limits that this broker wrote last, by instance and entity, with the config change that announced them."""

    def __init__(self) -> None:
        self._written: dict[str, dict[AnyEntity, tuple[dict[str, float], int]]] = {}

    def check(
        self,
        quotas: QuotaImage,
        config_change: int,
        instance_id: str,
        entity: AnyEntity,
        limits: Mapping[str, float | None],
    ) -> dict[str, float]:
        """Returns the limits of the entity after `limits` are set, where None removes; `config_change` is that of the
        image.

        Raises:
            errors.PolicyViolation: the instance would have limits for too many entities, or of too many bytes.
        """
        self._drop_shown(instance_id, config_change)
        unshown = self._written.get(instance_id, {})
        before = unshown[entity][0] if entity in unshown else quotas.limits(instance_id, entity)
        after = {name: value for name, value in {**before, **limits}.items() if value is not None}
        added_bytes = stored_bytes_of(instance_id, entity, after) - stored_bytes_of(instance_id, entity, before)
        if added_bytes <= 0:
            return after
        count, stored_bytes = quotas.count(instance_id), quotas.stored_bytes.get(instance_id, 0)
        for other, (written, _) in unshown.items():
            shown = quotas.limits(instance_id, other)
            count += bool(written) - bool(shown)
            stored_bytes += stored_bytes_of(instance_id, other, written) - stored_bytes_of(instance_id, other, shown)
        if not before and count >= QUOTA_ENTITIES_MAX:
            raise errors.PolicyViolation(
                f"The instance has limits for {QUOTA_ENTITIES_MAX} users and clients already; remove some first."
            )
        if stored_bytes + added_bytes > QUOTA_BYTES_MAX:
            raise errors.PolicyViolation(
                f"The client quotas of the instance would weigh more than {QUOTA_BYTES_MAX} bytes; remove some first, "
                "or use shorter names."
            )
        return after

    def record(self, instance_id: str, entity: AnyEntity, limits: dict[str, float], change: int) -> None:
        """Records limits that were written and announced."""
        self._written.setdefault(instance_id, {})[entity] = limits, change

    def _drop_shown(self, instance_id: str, config_change: int) -> None:
        unshown = self._written.get(instance_id)
        if unshown is None:
            return
        remaining = {entity: written for entity, written in unshown.items() if written[1] > config_change}
        if remaining:
            self._written[instance_id] = remaining
        else:
            del self._written[instance_id]
