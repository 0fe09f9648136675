"""Copies of a topic's records: start one, cancel it, and resume one that failed or was cancelled."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.access import require_reachable
from instances.copying.interfaces import record_log
from instances.copying.limits import (
    COPIES_MAX,
    COPIES_PER_INSTANCE_MAX,
    COPIES_PER_TENANT_MAX,
    ENDED_COPIES_KEPT_MAX,
)
from instances.copying.models import CopyState, TopicCopy
from instances.models import Instance
from instances.services.common import lock_copies
from instances.services.topics import clone_topic, inherit_schemas_and_masks, topic_ref
from instances.topics.presence import describe_topic, not_ready_if_pending
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message, NotFound, QuotaExceeded

# Permissions that every change of a copy requires.
REQUIRED_SCOPES = (Scope.TOPICS_WRITE, Scope.MESSAGES_READ, Scope.MESSAGES_WRITE)


@audit.atomic
def copy_topic(*, acting: Actor, instance: Instance, topic: str, name: str, dry_run: bool = False) -> TopicCopy:
    """Clones a topic under another name, and starts to copy the records that it has now.

    Raises `NotFound` for an unknown topic, `Conflict(copies_running)` if the maximum number of copies is running,
    `QuotaExceeded` if the instance lacks storage for the copy, and the errors of `clone_topic`.
    """
    for scope in REQUIRED_SCOPES:
        access.require(acting, scope)
    require_reachable(instance)
    lock_copies(instance)
    _require_free_slot(instance)
    source = describe_topic(instance, topic)
    _require_storage(instance, topic)
    with not_ready_if_pending(instance, topic):
        bounds = record_log.implementation(instance.pk, topic).bounds()
    clone_topic(acting=acting, instance=instance, topic=topic, name=name, dry_run=dry_run)
    copy = TopicCopy.objects.create(
        instance=instance,
        source=topic,
        source_id=source.topic_id,
        target=name,
        partitions={str(index): [start, stop, 0] for index, (start, stop) in sorted(bounds.items())},
        total_offsets=sum(stop - start for start, stop in bounds.values()),
        asked_by=acting.label,
    )
    after = {"from": topic, "offsets": copy.total_offsets, "copy": copy.pk}
    audit.record(acting, "topic.copy_started", topic_ref(instance, name), None, after, tenant=instance.tenant)
    _delete_oldest_ended(instance)
    return copy


@audit.atomic
def cancel_copy(*, acting: Actor, instance: Instance, copy_id: str) -> TopicCopy:
    """Cancels a copy, which stops within seconds; the new topic stays with the records copied so far.

    Raises `Conflict` for a copy that has ended.
    """
    copy = _locked_copy(acting, instance, copy_id)
    if copy.state != CopyState.RUNNING:
        raise Conflict(gettext_noop("The copy has ended already."), code="already_ended")
    copy.state, copy.finished_at = CopyState.CANCELLED, timezone.now()
    copy.save(update_fields=["state", "finished_at"])
    after = {"from": copy.source, "messages": copy.copied_records}
    audit.record(acting, "topic.copy_cancelled", topic_ref(instance, copy.target), None, after, tenant=instance.tenant)
    return copy


@audit.atomic
def resume_copy(*, acting: Actor, instance: Instance, copy_id: str) -> TopicCopy:
    """Resumes a failed or cancelled copy where it stopped. The new topic gets the masks that the source has by now.

    Raises `Conflict` for a copy in another state, and if the maximum number of copies is running.
    """
    copy = _locked_copy(acting, instance, copy_id)
    if copy.state not in (CopyState.FAILED, CopyState.CANCELLED):
        raise Conflict(gettext_noop("Only a copy that failed or was cancelled goes on."), code="not_resumable")
    _require_free_slot(instance)
    inherit_schemas_and_masks(instance, copy.source, copy.target)
    copy.state, copy.finished_at, copy.progress_at = CopyState.RUNNING, None, timezone.now()
    copy.error = copy.error_code = ""
    copy.save(update_fields=["state", "finished_at", "progress_at", "error", "error_code"])
    after = {"from": copy.source, "messages": copy.copied_records}
    audit.record(acting, "topic.copy_resumed", topic_ref(instance, copy.target), None, after, tenant=instance.tenant)
    return copy


def topic_copies(instance: Instance) -> Iterable[TopicCopy]:
    """Returns the copies of an instance, the latest first."""
    return TopicCopy.objects.filter(instance=instance)


def topic_copy(instance: Instance, copy_id: str) -> TopicCopy:
    """Returns one copy of an instance. Raises `NotFound`."""
    copy = TopicCopy.objects.filter(instance=instance, pk=copy_id).first()
    if copy is None:
        raise NotFound
    return copy


def _locked_copy(acting: Actor, instance: Instance, copy_id: str) -> TopicCopy:
    """Returns a copy with its row locked, for an actor who may change it. Raises `NotFound`."""
    for scope in REQUIRED_SCOPES:
        access.require(acting, scope)
    require_reachable(instance)
    lock_copies(instance)
    copy = TopicCopy.objects.select_for_update().filter(instance=instance, pk=copy_id).first()
    if copy is None:
        raise NotFound
    return copy


def _require_free_slot(instance: Instance) -> None:
    """Raises `Conflict(copies_running)` if the instance, its tenant or the installation runs its maximum of copies."""
    running = TopicCopy.objects.filter(state=CopyState.RUNNING)
    if (
        running.filter(instance=instance).count() >= COPIES_PER_INSTANCE_MAX
        or running.filter(instance__tenant=instance.tenant_id).count() >= COPIES_PER_TENANT_MAX
        or running.count() >= COPIES_MAX
    ):
        detail = gettext_noop("As many topics are being copied as may at once. Wait for one to end, or cancel it.")
        raise Conflict(detail, code="copies_running", retry_after_s=60)


def _require_storage(instance: Instance, topic: str) -> None:
    sizes = interfaces.observation.implementation.topic_sizes(instance.pk)
    needed_bytes = sizes.stored_by_topic.get(topic, 0)
    free_bytes = instance.storage_bytes - sizes.stored_bytes
    if needed_bytes > free_bytes:
        detail = Message(
            gettext_noop("The copy needs %(needed)s bytes of storage, and %(left)s are left."),
            needed=needed_bytes,
            left=max(0, free_bytes),
        )
        raise QuotaExceeded(detail, code="no_storage_left")


def _delete_oldest_ended(instance: Instance) -> None:
    ended = TopicCopy.objects.filter(instance=instance).exclude(state=CopyState.RUNNING).order_by("-created_at", "pk")
    TopicCopy.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[ENDED_COPIES_KEPT_MAX:])).delete()
