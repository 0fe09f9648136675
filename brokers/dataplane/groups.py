"""Implementation of `instances.groups.interfaces.group_admin_client` by ListGroups, DescribeGroups and requests about
offsets.

Results that pages poll are cached briefly and shared by all web workers, so that the load of brokers does not depend on
the number of viewers. A write invalidates the cache of its group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.cache import cache
from kafka.protocol.admin.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

from brokers.dataplane import coordinators, offsets
from brokers.dataplane.admin_client import cluster_of, require_ok
from brokers.dataplane.assignments import decode_assignment
from brokers.dataplane.coordinators import ERROR_TEXTS, GROUP
from brokers.dataplane.offsets import GROUP_NOT_FOUND, INVALID_GROUP, NON_EMPTY_GROUP, NON_EMPTY_GROUP_TEXT
from brokers.dataplane.scatter import Target, scatter, targets
from brokers.limits import GROUPS_CACHE_S
from instances.groups.interfaces import (
    DEAD,
    LATEST,
    CommittedOffset,
    GroupDescription,
    GroupList,
    GroupListing,
    GroupMember,
    GroupSummary,
    Partition,
)
from instances.interfaces import BrokerUnresponsive
from tenants.errors import DomainError, Message, gettext_noop

LIST_GROUPS_VERSION = 4
DESCRIBE_GROUPS_VERSION = 5
DELETE_GROUPS_VERSION = 2
CONSUMER = "consumer"
NO_SUCH_GROUP = frozenset({GROUP_NOT_FOUND, INVALID_GROUP})  # a name that no group may have does not exist


class KafkaGroupAdminClient:
    """Implements `instances.groups.interfaces.GroupAdminClient`."""

    def groups(self, instance_id: str) -> GroupList:
        key = f"groups:{instance_id}:list"
        cached: GroupList | None = cache.get(key)
        if cached is None:
            cached = _list_groups(instance_id)
            cache.set(key, cached, GROUPS_CACHE_S)
        return cached

    def describe(self, instance_id: str, ids: Sequence[str], *, fresh: bool = False) -> Mapping[str, GroupSummary]:
        keys = {group: _cache_key(instance_id, group) for group in ids}
        cached = {} if fresh else cache.get_many(list(keys.values()))
        result: dict[str, GroupSummary] = {group: cached[key] for group, key in keys.items() if key in cached}
        uncached = [group for group in ids if group not in result]
        if uncached:
            summaries = _describe_groups(instance_id, uncached)
            cache.set_many(
                {keys[group]: summary for group, summary in summaries.items() if not summary.trouble}, GROUPS_CACHE_S
            )
            result |= summaries
        return result

    def bounds(
        self, instance_id: str, partitions: Iterable[Partition], at_ms_or_position: int = LATEST, *, fresh: bool = False
    ) -> Mapping[Partition, int]:
        unique_partitions = sorted(set(partitions))
        digest = hashlib.sha256(repr(unique_partitions).encode()).hexdigest()[:32]
        key = f"groups:{instance_id}:bounds:{at_ms_or_position}:{digest}"
        cached: dict[Partition, int] | None = None if fresh else cache.get(key)
        if cached is None:
            cached = offsets.bounds(instance_id, unique_partitions, at_ms_or_position)
            cache.set(key, cached, GROUPS_CACHE_S)
        return cached

    def commit(
        self, instance_id: str, group: str, commits: Sequence[CommittedOffset]
    ) -> Mapping[Partition, DomainError]:
        try:
            return offsets.commit(instance_id, group, commits)
        finally:
            _invalidate_cache(instance_id, group)

    def delete_group(self, instance_id: str, group: str) -> None:
        tries = 0

        def new_request() -> Any:
            nonlocal tries
            tries += 1
            return DeleteGroupsRequest(groups_names=[group], version=DELETE_GROUPS_VERSION)

        def error_of(response: Any) -> int:
            return int(response.results[0].error_code)

        try:
            code = error_of(coordinators.send_to_coordinator(instance_id, GROUP, group, new_request, error_of))
            # A group that is missing at a second attempt was deleted by the first, whose response came too late.
            if code != GROUP_NOT_FOUND or tries == 1:
                require_ok(code, NON_EMPTY_GROUP_TEXT if code == NON_EMPTY_GROUP else None)
        finally:
            _invalidate_cache(instance_id, group)

    def delete_offsets(
        self, instance_id: str, group: str, partitions: Sequence[Partition]
    ) -> Mapping[Partition, DomainError]:
        try:
            return offsets.delete(instance_id, group, partitions)
        finally:
            _invalidate_cache(instance_id, group)


def _cache_key(instance_id: str, group: str) -> str:
    return f"groups:{instance_id}:look:{hashlib.sha256(group.encode()).hexdigest()[:32]}"


def _invalidate_cache(instance_id: str, group: str) -> None:
    """Removes a group and the list of groups from the cache."""
    cache.delete_many([_cache_key(instance_id, group), f"groups:{instance_id}:list"])


def _list_groups(instance_id: str) -> GroupList:
    brokers = targets(cluster_of(instance_id), instance_id)
    result = scatter([
        (target, ListGroupsRequest(states_filter=[], version=LIST_GROUPS_VERSION)) for target in brokers.values()
    ])  # fmt: skip
    groups: dict[str, GroupListing] = {}
    silent = {broker.broker_id: broker for broker in result.silent}
    for broker_id, response in result.responses:
        if response.error_code:
            reason = ERROR_TEXTS.get(response.error_code, f"refuses with error {response.error_code}")
            silent[broker_id] = BrokerUnresponsive(broker_id=broker_id, reason=reason)
        for group in response.groups:
            groups[group.group_id] = GroupListing(
                id=group.group_id, protocol_type=group.protocol_type, state=group.group_state, coordinator=broker_id
            )
    return GroupList(
        groups=tuple(groups[name] for name in sorted(groups)),
        silent=tuple(silent[broker_id] for broker_id in sorted(silent)),
    )


def _describe_groups(instance_id: str, ids: Sequence[str]) -> dict[str, GroupSummary]:
    cluster = cluster_of(instance_id)
    brokers = targets(cluster, instance_id)
    coordinator_by_group = coordinators.find_coordinators_of_instance(cluster, instance_id, GROUP, ids)
    requests: list[tuple[Target, Any]] = []
    for broker_id, names in coordinators.ids_by_broker(coordinator_by_group).items():
        if broker_id in brokers:
            describe = DescribeGroupsRequest(
                groups=names, include_authorized_operations=False, version=DESCRIBE_GROUPS_VERSION
            )
            requests += [(brokers[broker_id], describe), (brokers[broker_id], offsets.offset_fetch_request(names))]
    descriptions_by_group: dict[str, GroupDescription] = {}
    offsets_by_group: dict[str, tuple[CommittedOffset, ...]] = {}
    reason_by_group: dict[str, str] = {}
    for broker_id, response in scatter(requests).responses:
        if response.API_KEY == DescribeGroupsRequest.API_KEY:
            _collect_descriptions(broker_id, response, descriptions_by_group, reason_by_group)
        else:
            _collect_offsets(response, offsets_by_group, reason_by_group)
    return {
        group: GroupSummary(
            description=descriptions_by_group.get(group),
            offsets=offsets_by_group.get(group),
            trouble=_failure_reason(
                group,
                coordinator_by_group,
                reason_by_group,
                is_known=group in descriptions_by_group and group in offsets_by_group,
            ),
        )
        for group in ids
    }


def _collect_descriptions(
    broker_id: int, response: Any, descriptions_by_group: dict[str, GroupDescription], reason_by_group: dict[str, str]
) -> None:
    for group in response.groups:
        if group.error_code in NO_SUCH_GROUP:
            descriptions_by_group[group.group_id] = _description(group, broker_id, state=DEAD)
        elif group.error_code:
            reason_by_group[group.group_id] = ERROR_TEXTS.get(
                group.error_code, f"the brokers answered {group.error_code}"
            )
        else:
            descriptions_by_group[group.group_id] = _description(group, broker_id, state=group.group_state)


def _collect_offsets(
    response: Any, offsets_by_group: dict[str, tuple[CommittedOffset, ...]], reason_by_group: dict[str, str]
) -> None:
    for group in response.groups:
        if group.error_code in NO_SUCH_GROUP:
            offsets_by_group[group.group_id] = ()
        elif group.error_code:
            reason_by_group[group.group_id] = ERROR_TEXTS.get(
                group.error_code, f"the brokers answered {group.error_code}"
            )
        else:
            offsets_by_group[group.group_id] = offsets.committed_offsets(group)


def _failure_reason(
    group: str, coordinator_by_group: Mapping[str, int], reason_by_group: Mapping[str, str], *, is_known: bool
) -> str:
    """Returns why a part of a group is unknown, in words that follow "not known:"; "" if everything is known."""
    if is_known:
        return ""
    if group in reason_by_group:
        return reason_by_group[group]
    if group not in coordinator_by_group:
        return ERROR_TEXTS[coordinators.NOT_AVAILABLE]
    return Message(gettext_noop("broker %(id)s does not answer"), id=coordinator_by_group[group])


def _description(group: Any, coordinator: int, *, state: str) -> GroupDescription:
    is_consumer = group.protocol_type == CONSUMER
    members = (
        GroupMember(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            instance_id=member.group_instance_id,
            assignment=decode_assignment(bytes(member.member_assignment or b"")) if is_consumer else None,
        )
        for member in group.members
    )
    return GroupDescription(
        id=group.group_id,
        state=state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda member: (member.client_id, member.id))),
    )
