"""Periodic sampling of the lags of all consumer groups, for trends on pages and for alerts.

One round covers a bounded number of groups and partitions of each cluster and continues where the previous round
stopped, so that a large cluster is sampled less often instead of at a greater cost; its groups are listed once for
several rounds. Groups of very many partitions have a queue of their own; after one of them was sampled, the next one
waits for as many rounds as it cost. A topic whose name is too long for the cluster is stored under a hash; its name is
queried with the identity of its instance, for a limited number of instances per round. The position of a round is
cached; losing it affects only the order.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from django.core.cache import cache

from brokers.dataplane.kafka_lags import KafkaClusterLags
from brokers.dataplane.lags import ClusterLags
from brokers.limits import (
    LAG_GROUPS_LISTED_MAX,
    LAG_GROUPS_PER_ROUND_MAX,
    LAG_INSTANCES_LISTED_MAX,
    LAG_LARGE_GROUP_PARTITIONS_MAX,
    LAG_LARGE_GROUPS_MAX,
    LAG_OWNERS_PER_ROUND_MAX,
    LAG_PARTITIONS_PER_ROUND_MAX,
)
from brokers.models import Cluster, Placement
from instances.groups import lag_history
from instances.groups.interfaces import CommittedOffset, Partition
from instances.limits import LAG_PARTITIONS_PER_GROUP_MAX
from instances.naming import plain_topic, split_internal
from tenants.containment import contained
from tenants.errors import DomainError

logger = logging.getLogger(__name__)

PROGRESS_KEPT_S = 3_600


class LagQueries(Protocol):
    """The queries of a round to a cluster. `is_partial`: a list has the groups of some instances."""

    is_partial: bool

    def group_ids(self) -> list[str]: ...
    def committed_offsets(self, ids: Sequence[str]) -> Mapping[str, tuple[CommittedOffset, ...]]: ...
    def topic_names(self, instance_id: str, groups: Sequence[str]) -> Mapping[str, str]: ...
    def end_offsets(self, partitions: set[Partition]) -> Mapping[Partition, int]: ...


@dataclass(slots=True)
class RoundPosition:
    """Position of a cluster's rounds, as cached between them.

    `unsampled` are the group ids of the last list that are not sampled yet. `large` are groups that are too large for
    any round; `credit` is the number of partitions that may be queried for them, below 0 after a group larger than a
    round.
    """

    last_sampled_id: str = ""
    unsampled: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)
    credit: int = 0


def sample_all(now_ms: int) -> int:
    """Runs a round over every cluster; returns the number of sampled groups."""
    sampled = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("lags.cluster_failed", cluster_id=cluster.pk):
            try:
                sampled += sample_cluster(cluster.pk, _queries(cluster), now_ms)
            except DomainError as error:
                logger.info("lags of cluster %s are not sampled: %s", cluster.pk, error.detail)
    return sampled


def _queries(cluster: Cluster) -> LagQueries:
    if cluster.is_kafka:
        return KafkaClusterLags(cluster, partial(_next_instances, cluster))
    return ClusterLags(cluster)


def _next_instances(cluster: Cluster) -> list[str]:
    """Returns the ids of the cluster's next instances, in turn."""
    key = f"lags:{cluster.pk}:instance"
    after = cache.get(key, "")
    placements = Placement.objects.filter(cluster=cluster).order_by("instance_id")
    ids = placements.values_list("instance_id", flat=True)
    result = list(ids.filter(instance_id__gt=after)[:LAG_INSTANCES_LISTED_MAX])
    result += ids.filter(instance_id__lte=after)[: LAG_INSTANCES_LISTED_MAX - len(result)]
    cache.set(key, result[-1] if result else "", PROGRESS_KEPT_S)
    return result


def sample_cluster(cluster_id: str, lags: LagQueries, now_ms: int) -> int:
    """Runs a round over one cluster; returns the number of sampled groups."""
    key = f"lags:{cluster_id}:progress"
    position = RoundPosition(*cache.get(key, ()))
    count = _sample_unsampled(lags, position, now_ms) + _sample_large(lags, position, now_ms)
    cache.set(key, (position.last_sampled_id, position.unsampled, position.large, position.credit), PROGRESS_KEPT_S)
    return count


def _sample_unsampled(lags: LagQueries, position: RoundPosition, now_ms: int) -> int:
    # What is left is in no list of other instances.
    if len(position.unsampled) < (1 if lags.is_partial else LAG_GROUPS_PER_ROUND_MAX):
        position.unsampled = next_ids(lags.group_ids(), position.last_sampled_id)
    # Known large groups are left out: they would be queried for all their partitions only to be skipped again.
    large = set(position.large)
    candidates = position.unsampled[:LAG_GROUPS_PER_ROUND_MAX]
    ids = [group for group in candidates if group not in large]
    offsets_by_group = lags.committed_offsets(ids) if ids else {}
    groups_to_sample, too_large = within_limits(ids, offsets_by_group)
    position.large += [group for group in too_large if len(offsets_by_group[group]) <= LAG_LARGE_GROUP_PARTITIONS_MAX]
    del position.large[LAG_LARGE_GROUPS_MAX:]
    examined = len(groups_to_sample) + len(too_large)
    completed = len(candidates) if examined == len(ids) else candidates.index(ids[examined])
    if completed:
        position.last_sampled_id = candidates[completed - 1]
        del position.unsampled[:completed]
    _store_samples(lags, {group: offsets_by_group.get(group, ()) for group in groups_to_sample}, now_ms)
    return len(groups_to_sample)


def _sample_large(lags: LagQueries, position: RoundPosition, now_ms: int) -> int:
    """Samples the next large group when the credit spent on the previous one is restored. Returns the number of sampled
    groups. A group that is still large goes to the end of the queue.
    """
    position.credit = min(position.credit + LAG_PARTITIONS_PER_ROUND_MAX, LAG_PARTITIONS_PER_ROUND_MAX)
    if position.credit <= 0 or not position.large:
        return 0
    group = position.large.pop(0)
    offsets = lags.committed_offsets([group]).get(group, ())
    position.credit -= len(offsets)
    if not LAG_PARTITIONS_PER_GROUP_MAX < len(offsets) <= LAG_LARGE_GROUP_PARTITIONS_MAX:
        return 0
    position.large.append(group)
    _store_samples(lags, {group: offsets}, now_ms)
    return 1


def next_ids(ids: Sequence[str], last_sampled_id: str) -> list[str]:
    """Returns the sorted `ids` after `last_sampled_id`, then those before it, at most `LAG_GROUPS_LISTED_MAX`. Pure."""
    following = [id for id in ids if id > last_sampled_id]
    return [*following, *(id for id in ids if id <= last_sampled_id)][:LAG_GROUPS_LISTED_MAX]


def within_limits(
    ids: Sequence[str], offsets_by_group: Mapping[str, Sequence[CommittedOffset]]
) -> tuple[list[str], list[str]]:
    """Returns the first groups that a round may query, and the groups among them that are too large for any round.
    Pure.
    """
    accepted: list[str] = []
    too_large: list[str] = []
    partitions = 0
    owners: set[str | None] = set()
    for id in ids:
        offsets = offsets_by_group.get(id, ())
        if len(offsets) > LAG_PARTITIONS_PER_GROUP_MAX:
            too_large.append(id)
            continue
        partitions += len(offsets)
        if _is_hashed(offsets):
            owners.add(split_internal(id)[0])
        if partitions > LAG_PARTITIONS_PER_ROUND_MAX or len(owners) > LAG_OWNERS_PER_ROUND_MAX:
            break
        accepted.append(id)
    return accepted, too_large


def _is_hashed(offsets: Sequence[CommittedOffset]) -> bool:
    return any(plain_topic(offset.topic) is None for offset in offsets)


def _store_samples(lags: LagQueries, offsets_by_group: Mapping[str, Sequence[CommittedOffset]], now_ms: int) -> None:
    """Stores samples of groups with internal ids and topics. Groups with a topic of unknown tenant name are skipped."""
    names = _query_tenant_names(lags, offsets_by_group)
    named_groups = {
        group: offsets
        for group, offsets in offsets_by_group.items()
        if all(offset.topic in names for offset in offsets)
    }
    log_end_offsets: dict[str | None, dict[Partition, int]] = defaultdict(dict)
    partitions = sorted({offset.topic_partition for offsets in named_groups.values() for offset in offsets})
    for start in range(0, len(partitions), LAG_PARTITIONS_PER_ROUND_MAX):
        page = set(partitions[start : start + LAG_PARTITIONS_PER_ROUND_MAX])
        for (topic, index), end_offset in lags.end_offsets(page).items():
            log_end_offsets[split_internal(topic)[0]][names[topic], index] = end_offset
    for instance_id, groups in _internal_ids_by_instance(list(named_groups)).items():
        with contained("lags.instance_failed", instance_id=instance_id):
            result = {
                group: {(names[offset.topic], offset.partition): offset.offset for offset in named_groups[internal_id]}
                for group, internal_id in groups.items()
            }
            lag_history.record_samples(instance_id, result, log_end_offsets[instance_id], now_ms)


def _query_tenant_names(lags: LagQueries, offsets_by_group: Mapping[str, Sequence[CommittedOffset]]) -> dict[str, str]:
    """Returns the tenant's topic names by internal topic. Queries brokers for topics stored under a hash."""
    names: dict[str, str] = {}
    for topic in {offset.topic for offsets in offsets_by_group.values() for offset in offsets}:
        tenant_name = plain_topic(topic)
        if tenant_name is not None:
            names[topic] = tenant_name
    hashed_groups = [group for group, offsets in offsets_by_group.items() if _is_hashed(offsets)]
    for instance_id, groups in _internal_ids_by_instance(hashed_groups).items():
        names.update(lags.topic_names(instance_id, list(groups)))
    return names


def _internal_ids_by_instance(internal_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns, for each instance, its groups: internal id by the tenant's id."""
    result: dict[str, dict[str, str]] = defaultdict(dict)
    for internal_id in internal_ids:
        instance_id, group = split_internal(internal_id)
        assert instance_id is not None
        result[instance_id][group] = internal_id
    return result
