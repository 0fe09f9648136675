"""What services of groups share: who may, what is there, the audit row, and writes that happen whole or not at all."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.groups import selectors
from instances.groups.interfaces import EMPTY_STATES, Committed, GroupDescription, Partition, group_admin_client
from instances.models import Instance
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, Message, OutcomeUnknown, Unavailable
from tenants.models import AuditEntry

logger = logging.getLogger(__name__)

REF_CHARS_MAX = 240
NO_EPOCH = -1
# Of one audit row: a thousand partitions may have four thousand characters each, and a page shows fifty rows.
METADATA_KEPT_CHARS_MAX = 65_536
# None: nothing is committed.
Offsets = Mapping[Partition, Committed | None]


def present(acting: Actor, instance: Instance, group: str) -> tuple[GroupDescription, tuple[Committed, ...]]:
    """A group that exists, and its offsets, for somebody who may change it.

    Raises `NotFound`, and `Unavailable` when its coordinator does not answer.
    """
    access.require(acting, Scope.GROUPS_WRITE)
    require_reachable(instance)
    summary = group_admin_client.it.describe(instance.pk, [group], fresh=True)[group]
    description = selectors.known(group, summary)
    return description, offsets_known(summary.offsets, summary.trouble)


def offsets_known(offsets: tuple[Committed, ...] | None, trouble: str) -> tuple[Committed, ...]:
    """Offsets that somebody is about to change. Raises `Unavailable` where they are not known."""
    if offsets is None:
        raise Unavailable(
            Message(gettext_noop("Nothing is known of the group at the moment: %(why)s."), why=trouble), retry_after_s=1
        )
    return offsets


def require_empty(group: str, state: str) -> None:
    """Raise `Conflict(group_not_empty)` while a group has members (GRP-21)."""
    if state not in EMPTY_STATES:
        raise Conflict(
            Message(
                gettext_noop("%(group)s has running members. Stop them first; Kafka refuses it otherwise."), group=group
            ),
            code="group_not_empty",
        )


def write(instance: Instance, group: str, wanted: Offsets, before: Offsets) -> None:
    """Commit offsets and forget those that are None. When a part is refused, the rest is put back and it is said."""
    try:
        refused = _write(instance, group, wanted)
    except OutcomeUnknown:
        raise  # it may come after what would be put back
    except DomainError:
        _put_back(instance, group, before)
        raise
    if refused:
        _put_back(instance, group, {place: before[place] for place in wanted if place not in refused})
        raise next(iter(refused.values()))


def record(
    acting: Actor,
    instance: Instance,
    group: str,
    action: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> AuditEntry:
    """The audit row of a change of a group."""
    return audit.record(acting, action, group_ref(instance, group), before, after, tenant=instance.tenant)


def listed(offsets: Offsets) -> list[list[Any]]:
    """`[topic, partition, offset]`, and behind it leader epoch and metadata where the offset was committed with them.

    Lists, because the audit log hides values under keys that sound secret. PostgreSQL's JSON has no U+0000: metadata
    with it is a list of what stands between. Metadata beyond `METADATA_KEPT_CHARS_MAX` together is left out.
    """
    rows: list[list[Any]] = []
    left = METADATA_KEPT_CHARS_MAX
    for (topic, index), item in offsets.items():
        rows.append([topic, index, None if item is None else item.offset])
        if item is not None and (item.leader_epoch >= 0 or item.metadata):
            metadata = item.metadata if len(item.metadata) <= left else ""
            left -= len(metadata)
            rows[-1] += [item.leader_epoch, metadata.split("\x00") if "\x00" in metadata else metadata]
    return rows


def committed_of(values: Mapping[str, Any] | None) -> dict[Partition, Committed | None]:
    """The offsets that `listed` put into an audit row."""
    result: dict[Partition, Committed | None] = {}
    for topic, index, offset, *more in (values or {}).get("offsets", ()):
        epoch, metadata = more or (NO_EPOCH, "")
        result[topic, index] = None if offset is None else Committed(
            topic=topic, partition=index, offset=offset, leader_epoch=epoch,
            metadata=metadata if isinstance(metadata, str) else "\x00".join(metadata),
        )  # fmt: skip
    return result


def offsets_of(values: Mapping[str, Any] | None) -> dict[Partition, int | None]:
    """The same, as numbers alone."""
    return {place: item.offset if item else None for place, item in committed_of(values).items()}


def group_ref(instance: Instance, group: str) -> tuple[str, str]:
    """Name of a group in the audit log: `ins-…/etl`."""
    return scoped_ref("group", instance, group)


def scoped_ref(kind: str, instance: Instance, name: str) -> tuple[str, str]:
    """Name in the audit log of what a client named. What a column cannot hold is shortened, and stays unique."""
    shown = name.replace("\x00", "�")
    if shown != name or len(shown) > REF_CHARS_MAX:
        shown = f"{shown[: REF_CHARS_MAX - 20]}…{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return kind, f"{instance.pk}/{shown}"


def _write(instance: Instance, group: str, wanted: Offsets) -> dict[Partition, DomainError]:
    commits = [entry for _, entry in sorted(wanted.items(), key=lambda item: item[0]) if entry is not None]
    forgotten = sorted(place for place, entry in wanted.items() if entry is None)
    refused: dict[Partition, DomainError] = {}
    if commits:
        refused |= group_admin_client.it.commit(instance.pk, group, commits)
    if forgotten:
        refused |= group_admin_client.it.delete_offsets(instance.pk, group, forgotten)
    return refused


def _put_back(instance: Instance, group: str, before: Offsets) -> None:
    """What a write that failed half-way may have changed. Where this fails too, the first failure is the one told."""
    if not before:
        return
    try:
        _write(instance, group, before)
    except DomainError as error:
        logger.warning("offsets could not be put back", extra={"instance": instance.pk, "code": error.code})
