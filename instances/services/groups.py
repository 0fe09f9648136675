"""Deletion of a consumer group or of its offsets of a topic, and the undo of changes to offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django.db import transaction
from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.groups import selectors
from instances.groups.interfaces import CommittedOffset, Partition, group_admin_client
from instances.limits import RESET_PARTITIONS_MAX
from instances.models import Instance
from instances.services.group_common import (
    changeable_group,
    committed_offsets_from_audit,
    group_ref,
    offsets_for_audit,
    offsets_from_audit,
    record_group_change,
    require_empty,
    require_known_offsets,
    write_offsets,
)
from tenants import access, audit
from tenants.access import fetch
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, Invalid, Message, NotFound, Unavailable
from tenants.models import AuditEntry


@audit.atomic
def undo_offsets(*, acting: Actor, instance: Instance, group: str, entry_id: str, dry_run: bool = False) -> AuditEntry:
    """Restores the offsets that a group had before a reset or a deletion; `entry_id` is the audit row of that change.

    Raises `NotFound` for an audit row of another group, `Conflict(changed_since)` if an offset has moved since, and
    `Conflict(group_not_empty)`.
    """
    access.require(acting, Scope.GROUPS_WRITE)
    require_reachable(instance)
    rows = AuditEntry.objects.filter(
        tenant_id=instance.tenant_id, target_id=group_ref(instance, group)[1], action__in=selectors.UNDOABLE
    )
    entry = fetch(rows, pk=entry_id)
    offsets_before, offsets_after = committed_offsets_from_audit(entry.before), offsets_from_audit(entry.after)
    if not offsets_before:
        raise NotFound
    summary = group_admin_client.implementation.describe(instance.pk, [group], fresh=True)[group]
    if summary.description is None:
        raise Unavailable(
            Message(gettext_noop("Nothing is known of the group at the moment: %(why)s."), why=summary.trouble),
            retry_after_s=1,
        )
    current_offsets = {
        committed.topic_partition: committed for committed in require_known_offsets(summary.offsets, summary.trouble)
    }
    require_empty(group, summary.description.state)
    if any(
        (current_offsets[partition].offset if partition in current_offsets else None) != offsets_after.get(partition)
        for partition in offsets_before
    ):
        raise Conflict("Offsets have moved since, so the earlier ones are not put back.", code="changed_since")
    before = {partition: current_offsets.get(partition) for partition in offsets_before}
    after = {"undone": entry.pk, "offsets": offsets_for_audit(offsets_before)}
    undo_entry = record_group_change(
        acting, instance, group, "group.offsets_restored", {"offsets": offsets_for_audit(before)}, after
    )
    if not dry_run:
        with audit.in_doubt(undo_entry):
            write_offsets(instance, group, offsets_before, before)
    return undo_entry


@audit.atomic
def delete_group(*, acting: Actor, instance: Instance, group: str, dry_run: bool = False) -> AuditEntry:
    """Deletes a group and all its offsets. Raises `NotFound`, or `Conflict(group_not_empty)`.

    Returns the audit row. It has up to `RESET_PARTITIONS_MAX` offsets, which `undo_offsets` needs, or none.
    """
    description, committed = changeable_group(acting, instance, group)
    require_empty(group, description.state)
    before: dict[str, object] = {"partitions": len(committed)}
    if len(committed) <= RESET_PARTITIONS_MAX:
        before["offsets"] = offsets_for_audit({offset.topic_partition: offset for offset in committed})
    entry = record_group_change(acting, instance, group, "group.deleted", before, None)
    if not dry_run:
        with audit.in_doubt(entry):
            group_admin_client.implementation.delete_group(instance.pk, group)
    return entry


@audit.atomic
def delete_offsets(
    *,
    acting: Actor,
    instance: Instance,
    group: str,
    topic: str,
    partitions: Sequence[int] | None = None,
    dry_run: bool = False,
) -> AuditEntry:
    """Deletes a group's offsets of a topic or of some of its partitions. The group may have members that do not read
    the topic.

    Raises `NotFound` if there are no such offsets, `Invalid` if there are too many, `Conflict(topic_subscribed)`, and
    the error of the brokers if they refuse all. The returned audit row has the offsets that were deleted.
    """
    description, committed = changeable_group(acting, instance, group)
    offsets = [
        offset
        for offset in committed
        if offset.topic == topic and (partitions is None or offset.partition in partitions)
    ]
    if not offsets:
        raise NotFound
    if len(offsets) > RESET_PARTITIONS_MAX:
        raise Invalid(
            Message(gettext_noop("At most %(n)s partitions at once."), n=RESET_PARTITIONS_MAX), code="too_many"
        )
    if any(partition[0] == topic for member in description.members for partition in member.assignment or ()):
        raise Conflict("Members of the group read this topic.", code="topic_subscribed")
    try:
        with transaction.atomic():
            entry = _record_deleted(acting, instance, group, offsets)
            with audit.in_doubt(entry):
                topic_partitions = [offset.topic_partition for offset in offsets]
                refused = (
                    {}
                    if dry_run
                    else group_admin_client.implementation.delete_offsets(instance.pk, group, topic_partitions)
                )
            if refused:
                raise _PartlyRefused(refused)
    except _PartlyRefused as refusal:
        deleted = [offset for offset in offsets if offset.topic_partition not in refusal.refused]
        if not deleted:
            raise next(iter(refusal.refused.values())) from None
        entry = _record_deleted(acting, instance, group, deleted)
    return entry


class _PartlyRefused(Exception):
    """The deletion was refused for some partitions. It rolls back the audit row of all offsets; then a row of the
    deleted ones is written.
    """

    def __init__(self, refused: Mapping[Partition, DomainError]) -> None:
        super().__init__()
        self.refused = refused


def _record_deleted(acting: Actor, instance: Instance, group: str, deleted: Iterable[CommittedOffset]) -> AuditEntry:
    before = {offset.topic_partition: offset for offset in deleted}
    after = dict.fromkeys(before)
    return record_group_change(
        acting,
        instance,
        group,
        "group.offsets_deleted",
        {"offsets": offsets_for_audit(before)},
        {"offsets": offsets_for_audit(after)},
    )
