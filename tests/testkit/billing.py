"""What bills are made of, as the services and the pipeline write it."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F

from billing.models import UsageHour, UsageMinute
from instances.choices import OperationState, OperationType
from instances.models import Instance, Operation


def ran(instance: Instance, since: datetime, until: datetime | None = None) -> None:
    """The operations of an instance that ran since then, and was deleted at `until`."""

    def operation(type_: OperationType, at: datetime) -> None:
        Operation.objects.create(
            tenant=instance.tenant, instance=instance, type=type_, state=OperationState.SUCCEEDED, generation=1,
            plan=instance.plan, bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb,
            is_suspended=instance.is_suspended, asked_by="test", created_at=at, finished_at=at,
        )  # fmt: skip

    Instance.objects.filter(pk=instance.pk, created_at__gt=since).update(created_at=since)
    operation(OperationType.CREATE, since)
    if until is not None:
        operation(OperationType.DELETE, until)


def used(
    instance_id: str,
    minute: datetime,
    *,
    produce: int = 0,
    consume: int = 0,
    topic: str = "t",
    user: str = "u",
    client_id: str = "c",
) -> None:
    """A minute row for each direction, and the sum of its hour."""
    for direction, count in (("produce", produce), ("consume", consume)):
        if count:
            UsageMinute.objects.create(
                instance_id=instance_id, minute=minute, topic=topic, user=user, client_id=client_id,
                direction=direction, bytes=count, requests=1,
            )  # fmt: skip
            hour, _ = UsageHour.objects.get_or_create(
                instance_id=instance_id, hour=minute.replace(minute=0, second=0, microsecond=0), direction=direction,
                defaults={"bytes": 0, "requests": 0},
            )  # fmt: skip
            UsageHour.objects.filter(pk=hour.pk).update(bytes=F("bytes") + count, requests=F("requests") + 1)
