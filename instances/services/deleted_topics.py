"""Deletion of topics with undo: a deleted topic is hidden from clients, and purged when it expires.

A deletion writes a row, which is published to brokers with the instance's other documents. Records, offsets of groups,
settings and address lists stay; therefore the name stays taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_reachable
from instances.choices import TopicState
from instances.interfaces import TopicDescription
from instances.lifecycle.phases import REACHABLE
from instances.limits import (
    DELETED_TOPICS_EXPIRE_FROM_PERCENT,
    DELETED_TOPICS_MAX,
    PURGE_RETRIED_AFTER_S,
    PURGES_PER_ROUND_MAX,
    STORAGE_SAMPLE_EVERY_S,
)
from instances.metrics import storage_history
from instances.metrics.storage_use import used_percent
from instances.models import DeletedTopic, Instance, TopicAllowList
from instances.services.common import bump_and_publish, lock_topic
from instances.topic_models import TopicSchema
from instances.topics import allow_lists, pending, table
from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.containment import contained
from tenants.errors import Conflict, Message, NotFound

TARGET = "topic"


def restore_period() -> timedelta:
    """Returns the time for which a deleted topic can be restored."""
    return timedelta(days=settings.DELETED_TOPICS_KEPT_DAYS)


def soft_delete_topic(
    instance: Instance, description: TopicDescription, *, now: datetime, dry_run: bool
) -> DeletedTopic:
    """Writes the row of a deleted topic, so that brokers hide it. The oldest deleted topics beyond the limit of the
    instance expire now.
    """
    rows = DeletedTopic.objects.filter(instance=instance, is_restored=False).exclude(topic=description.name)
    oldest_first = rows.order_by("deleted_at").values_list("pk", flat=True)
    excess = list(oldest_first[: max(0, rows.count() - DELETED_TOPICS_MAX + 1)])
    DeletedTopic.objects.filter(pk__in=excess).update(expires_at=now)
    values = {
        "topic_id": description.topic_id,
        "partitions": len(description.partitions),
        "deleted_at": now,
        "expires_at": now + restore_period(),
        "is_restored": False,
    }
    row, _ = DeletedTopic.objects.update_or_create(instance=instance, topic=description.name, defaults=values)
    bump_and_publish(instance, dry_run=dry_run)
    return row


def require_topic_name_free(instance: Instance, name: str) -> None:
    """Raises `Conflict(recently_deleted)` for the name of a deleted topic that can be restored."""
    if DeletedTopic.objects.filter(instance=instance, topic=name, is_restored=False).exists():
        detail = Message(
            gettext_noop(
                "Topic %(name)s was deleted and can be restored. Restore it, or delete it for good, to use its name."
            ),
            name=name,
        )
        raise Conflict(detail, code="recently_deleted")


@audit.atomic
def restore_topic(*, acting: Actor, instance: Instance, name: str, dry_run: bool = False) -> None:
    """Shows a deleted topic to clients again, within about a second, with its records, offsets and settings, except
    records that retention has removed meanwhile.

    Raises `NotFound` for a topic that is not deleted, and `Conflict(already_exists)` if another topic has its name.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    lock_topic(instance, name)
    row = _deleted_row(instance, name)
    _require_no_other_topic(instance, row)
    audit.record(acting, "topic.restored", _ref(row), None, {"partitions": row.partitions}, tenant=instance.tenant)
    DeletedTopic.objects.filter(pk=row.pk).update(is_restored=True)
    bump_and_publish(instance, dry_run=dry_run)
    if not dry_run:
        restored = pending.PendingTopic(
            name, TopicState.BEING_RESTORED.value, row.topic_id, row.partitions, None, pending.current_ms()
        )
        transaction.on_commit(lambda: pending.add(instance.pk, restored))
        transaction.on_commit(lambda: table.invalidate(instance.pk, created=[name]))


@audit.atomic
def purge_deleted_topic(*, acting: Actor, instance: Instance, name: str, dry_run: bool = False) -> None:
    """Purges a deleted topic with its records, schemas and address lists; masks stay. If brokers show another topic of
    its name, only the row is deleted.

    Raises `NotFound` for a topic that is not deleted.
    """
    access.require(acting, Scope.TOPICS_WRITE)
    require_reachable(instance)
    lock_topic(instance, name)
    row = _deleted_row(instance, name)
    before = {"partitions": row.partitions}
    entry = audit.record(acting, "topic.deleted_for_good", _ref(row), before, None, tenant=instance.tenant)
    is_replaced = _visible_topic_id(instance, name) not in (None, row.topic_id)
    row.delete()
    if not is_replaced:
        TopicSchema.objects.filter(instance=instance, topic=name).delete()
        rows = TopicAllowList.objects.filter(instance=instance, topic=name)
        had_lists = rows.update(**allow_lists.AllowLists().columns(""))
        if not dry_run:
            with audit.in_doubt(entry):
                interfaces.data_plane.implementation.delete_hidden_topic(instance.pk, name)
        if had_lists:
            bump_and_publish(instance, dry_run=dry_run)


def purge_expired_topics(now: datetime) -> int:
    """Purges expired topics, and the oldest one of each instance that needs its storage. Returns the number of purged
    topics; one that fails can be restored until it is tried again.
    """
    reachable = [phase.value for phase in REACHABLE]
    deleted = DeletedTopic.objects.filter(is_restored=False, instance__phase__in=reachable)
    _expire_where_storage_is_needed(list(deleted.order_by().values_list("instance_id", flat=True).distinct()), now)
    rows = deleted.filter(expires_at__lte=now).select_related("instance__tenant")
    purged = 0
    for row in rows.order_by("expires_at")[:PURGES_PER_ROUND_MAX]:
        acting = system_actor("deleted topics", row.instance.tenant)
        with contained("topics.purge_failed", instance_id=row.instance_id):
            purge_deleted_topic(acting=acting, instance=row.instance, name=row.topic)
            purged += 1
            continue
        deleted.filter(pk=row.pk).update(expires_at=now + timedelta(seconds=PURGE_RETRIED_AFTER_S))
    return purged


def _expire_where_storage_is_needed(instance_ids: Sequence[str], now: datetime) -> None:
    """Expires the oldest deleted topic of each instance that is nearly full: one for each sample of its storage,
    because the next sample shows if that was enough.
    """
    samples = storage_history.latest_samples(instance_ids)
    for instance in Instance.objects.filter(pk__in=list(samples)):
        at_ms, used_bytes = samples[instance.pk]
        if used_percent(used_bytes, instance.storage_bytes) < DELETED_TOPICS_EXPIRE_FROM_PERCENT:
            continue
        key = f"deleted-topics:{instance.pk}:sample"
        if cache.get(key) == at_ms:
            continue
        rows = DeletedTopic.objects.filter(instance=instance, is_restored=False)
        oldest = rows.order_by("deleted_at").values_list("pk", flat=True)[:1]
        DeletedTopic.objects.filter(pk__in=list(oldest), expires_at__gt=now).update(expires_at=now)
        cache.set(key, at_ms, STORAGE_SAMPLE_EVERY_S * 2)


def deleted_topics(instance: Instance) -> Iterable[DeletedTopic]:
    """Returns the deleted topics that can be restored, latest first."""
    return DeletedTopic.objects.filter(instance=instance, is_restored=False).order_by("-deleted_at", "topic")


def _deleted_row(instance: Instance, name: str) -> DeletedTopic:
    row = DeletedTopic.objects.filter(instance=instance, topic=name, is_restored=False).first()
    if row is None:
        raise NotFound("There is no deleted topic of this name.")
    row.instance = instance
    return row


def _visible_topic_id(instance: Instance, name: str) -> str | None:
    """Returns the id of the topic that brokers show under a name, or None. Shortly after a deletion it is still the id
    of the deleted topic.
    """
    try:
        return interfaces.data_plane.implementation.topic(instance.pk, name).topic_id
    except NotFound:
        return None


def _require_no_other_topic(instance: Instance, row: DeletedTopic) -> None:
    if _visible_topic_id(instance, row.topic) not in (None, row.topic_id):
        raise Conflict("There is another topic of this name.", code="already_exists")


def _ref(row: DeletedTopic) -> tuple[str, str]:
    return TARGET, f"{row.instance_id}/{row.topic}"
