"""Steps that services of consumer groups share: permission, current state, audit rows, and writes with rollback."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.groups import selectors
from instances.groups.interfaces import EMPTY_STATES, CommittedOffset, GroupDescription, Partition, group_admin_client
from instances.models import Instance
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, Message, OutcomeUnknown, Unavailable
from tenants.models import AuditEntry

logger = logging.getLogger(__name__)

REF_CHARS_MAX = 240
NO_EPOCH = -1
# Characters of metadata in one audit row: a thousand partitions may have four thousand characters each, and a page
# shows fifty rows.
AUDITED_METADATA_CHARS_MAX = 65_536
# None stands for no committed offset.
Offsets = Mapping[Partition, CommittedOffset | None]


def changeable_group(
    acting: Actor, instance: Instance, group: str
) -> tuple[GroupDescription, tuple[CommittedOffset, ...]]:
    """Returns an existing group with its offsets, for an actor who may change it.

    Raises `NotFound`, and `Unavailable` if its coordinator does not answer.
    """
    access.require(acting, Scope.GROUPS_WRITE)
    require_reachable(instance)
    summary = group_admin_client.implementation.describe(instance.pk, [group], fresh=True)[group]
    description = selectors.require_known_group(group, summary)
    return description, require_known_offsets(summary.offsets, summary.trouble)


def require_known_offsets(
    offsets: tuple[CommittedOffset, ...] | None, failure_reason: str
) -> tuple[CommittedOffset, ...]:
    """Returns offsets that are about to be changed. Raises `Unavailable` if they are unknown."""
    if offsets is None:
        raise Unavailable(
            Message(gettext_noop("Nothing is known of the group at the moment: %(why)s."), why=failure_reason),
            retry_after_s=1,
        )
    return offsets


def require_empty(group: str, state: str) -> None:
    """Raises `Conflict(group_not_empty)` while a group has members (GRP-21)."""
    if state not in EMPTY_STATES:
        raise Conflict(
            Message(
                gettext_noop("%(group)s has running members. Stop them first; Kafka refuses it otherwise."), group=group
            ),
            code="group_not_empty",
        )


def write_offsets(instance: Instance, group: str, new_offsets: Offsets, before: Offsets) -> None:
    """Commits offsets and deletes those that are None. If some are refused, restores the others and raises."""
    try:
        refused = _apply(instance, group, new_offsets)
    except OutcomeUnknown:
        raise  # the write may still arrive, after offsets were restored
    except DomainError:
        _restore(instance, group, before)
        raise
    if refused:
        _restore(
            instance, group, {partition: before[partition] for partition in new_offsets if partition not in refused}
        )
        raise next(iter(refused.values()))


def record_group_change(
    acting: Actor,
    instance: Instance,
    group: str,
    action: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> AuditEntry:
    """Writes the audit row of a change of a group."""
    return audit.record(acting, action, group_ref(instance, group), before, after, tenant=instance.tenant)


def offsets_for_audit(offsets: Offsets) -> list[list[Any]]:
    """Returns rows of `[topic, partition, offset]`, followed by leader epoch and metadata if the offset has them.

    They are lists, because the audit log hides values under keys that look secret. PostgreSQL's JSON has no U+0000:
    metadata with it is split into a list. Metadata beyond `AUDITED_METADATA_CHARS_MAX` in total is left out.
    """
    rows: list[list[Any]] = []
    chars_left = AUDITED_METADATA_CHARS_MAX
    for (topic, index), committed in offsets.items():
        rows.append([topic, index, None if committed is None else committed.offset])
        if committed is not None and (committed.leader_epoch >= 0 or committed.metadata):
            metadata = committed.metadata if len(committed.metadata) <= chars_left else ""
            chars_left -= len(metadata)
            rows[-1] += [committed.leader_epoch, metadata.split("\x00") if "\x00" in metadata else metadata]
    return rows


def committed_offsets_from_audit(values: Mapping[str, Any] | None) -> dict[Partition, CommittedOffset | None]:
    """Returns the offsets that `offsets_for_audit` wrote into an audit row."""
    result: dict[Partition, CommittedOffset | None] = {}
    for topic, index, offset, *epoch_and_metadata in (values or {}).get("offsets", ()):
        epoch, metadata = epoch_and_metadata or (NO_EPOCH, "")
        result[topic, index] = None if offset is None else CommittedOffset(
            topic=topic, partition=index, offset=offset, leader_epoch=epoch,
            metadata=metadata if isinstance(metadata, str) else "\x00".join(metadata),
        )  # fmt: skip
    return result


def offsets_from_audit(values: Mapping[str, Any] | None) -> dict[Partition, int | None]:
    """Returns the offsets of an audit row without epochs and metadata."""
    return {
        partition: committed.offset if committed else None
        for partition, committed in committed_offsets_from_audit(values).items()
    }


def group_ref(instance: Instance, group: str) -> tuple[str, str]:
    """Returns the audit log's name of a group: `ins-…/etl`."""
    return scoped_ref("group", instance, group)


def scoped_ref(kind: str, instance: Instance, name: str) -> tuple[str, str]:
    """Returns the audit log's name of an object whose name a client chose. A name that is too long or has U+0000 is
    changed, and a hash of the original is appended.
    """
    shown = name.replace("\x00", "�")
    if shown != name or len(shown) > REF_CHARS_MAX:
        shown = f"{shown[: REF_CHARS_MAX - 20]}…{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return kind, f"{instance.pk}/{shown}"


def _apply(instance: Instance, group: str, new_offsets: Offsets) -> dict[Partition, DomainError]:
    commits = [offset for _, offset in sorted(new_offsets.items(), key=lambda pair: pair[0]) if offset is not None]
    deleted = sorted(partition for partition, offset in new_offsets.items() if offset is None)
    refused: dict[Partition, DomainError] = {}
    if commits:
        refused |= group_admin_client.implementation.commit(instance.pk, group, commits)
    if deleted:
        refused |= group_admin_client.implementation.delete_offsets(instance.pk, group, deleted)
    return refused


def _restore(instance: Instance, group: str, before: Offsets) -> None:
    """Restores offsets after a partial write. A failure here is logged; the caller raises the error of the write."""
    if not before:
        return
    try:
        _apply(instance, group, before)
    except DomainError as error:
        logger.warning("offsets could not be restored", extra={"instance": instance.pk, "code": error.code})
