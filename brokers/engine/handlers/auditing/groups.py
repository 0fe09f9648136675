"""Audit descriptions of group deletions, offset deletions and commits by clients that are no members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from brokers.contract.audit import DONE, AuditItem
from brokers.engine.handlers.auditing.changes import PARTITIONS_MAX, Asked, Change, ItemResult, error_of, first_error

GROUP: Final = "group"
COMMITTED: Final = "group.offsets_committed"
_NO_GENERATION: Final = -1


def deleted(asked: Asked) -> Change | None:
    names = asked.request.groups_names
    if asked.response is None:
        answers: Iterable[tuple[str, int]] = ((name, error_of(None)) for name in names)
    else:
        answers = ((result.group_id, result.error_code) for result in asked.response.results)
    lines = (ItemResult(error, name, partial(_deleted, name)) for name, error in answers)
    return Change("group.deleted", GROUP, len(names), lines)


def _deleted(name: str) -> AuditItem:
    return AuditItem(action="group.deleted", kind=GROUP, name=name)


def offsets_deleted(asked: Asked) -> Change | None:
    request, response = asked.request, asked.response
    if response is None:
        error = error_of(None)
    else:
        error = response.error_code or first_error(_lines(response.topics))
    line = ItemResult(error, request.group_id, partial(_offsets_deleted, request))
    return Change("group.offsets_deleted", GROUP, 1, (line,))


def _offsets_deleted(request: Any) -> AuditItem:
    names = (f"{topic.name}-{partition.partition_index}" for topic in request.topics for partition in topic.partitions)
    before = {"partitions": _count(request.topics), "of": list(islice(names, PARTITIONS_MAX))}
    return AuditItem(action="group.offsets_deleted", kind=GROUP, name=request.group_id, before=before)


def offsets_committed(asked: Asked) -> Change | None:
    """Describes a commit by a client that is no member: an administrator, or a reader without group management. Members
    commit all the time and are not recorded.
    """
    request, response = asked.request, asked.response
    if request.generation_id_or_member_epoch != _NO_GENERATION or request.member_id or request.group_instance_id:
        return None
    error = error_of(None) if response is None else first_error(_lines(response.topics))
    line = ItemResult(error, request.group_id, partial(_offsets_committed, request))
    return Change(COMMITTED, GROUP, 1, (line,))


def _offsets_committed(request: Any) -> AuditItem:
    offsets = (
        (f"{topic.name}-{partition.partition_index}", partition.committed_offset)
        for topic in request.topics
        for partition in topic.partitions
    )
    after = {"partitions": _count(request.topics), "offsets": dict(islice(offsets, PARTITIONS_MAX))}
    return AuditItem(action=COMMITTED, kind=GROUP, name=request.group_id, outcome=DONE, after=after)


def _lines(topics: Iterable[Any]) -> Iterator[Any]:
    return chain.from_iterable(topic.partitions for topic in topics)


def _count(topics: Iterable[Any]) -> int:
    return sum(len(topic.partitions) for topic in topics)
