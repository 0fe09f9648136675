"""Queries for the lags of all groups of a cluster, with internal names and few requests per broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka.protocol.admin.groups import ListGroupsRequest

from brokers.contract.process import CLUSTER_USER
from brokers.dataplane import coordinators, offsets
from brokers.dataplane.coordinators import GROUP
from brokers.dataplane.groups import LIST_GROUPS_VERSION
from brokers.dataplane.scatter import pair_with_targets, scatter, targets
from brokers.models import Cluster
from instances.groups.interfaces import LATEST, CommittedOffset, Partition
from instances.naming import internal_topic, split_internal


class ClusterLags:
    """Queries the groups of a cluster's instances, their committed offsets and the log end offsets.

    Results of brokers that do not answer are missing. Raises `Unavailable` if no broker answers.
    """

    is_partial = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._targets = targets(cluster, CLUSTER_USER)

    def group_ids(self) -> list[str]:
        """Returns the internal ids of instances' groups, sorted."""
        requests = [
            (target, ListGroupsRequest(states_filter=[], version=LIST_GROUPS_VERSION))
            for target in self._targets.values()
        ]
        result = {group.group_id for _, response in scatter(requests).responses for group in response.groups}
        return sorted(group for group in result if split_internal(group)[0] is not None)

    def committed_offsets(self, ids: Sequence[str]) -> Mapping[str, tuple[CommittedOffset, ...]]:
        """Returns the committed offsets by group. Group ids and topics are internal names."""
        ids_by_broker = coordinators.ids_by_broker(coordinators.find_coordinators(self._cluster, GROUP, ids))
        requests = {number: offsets.offset_fetch_request(names) for number, names in ids_by_broker.items()}
        responses = scatter(pair_with_targets(self._targets, requests)).responses
        return {
            group.group_id: offsets.committed_offsets(group)
            for _, response in responses
            for group in response.groups
            if not group.error_code
        }

    def topic_names(self, instance_id: str, groups: Sequence[str]) -> Mapping[str, str]:
        """Returns the tenant's names by internal topic, for topics with commits of these groups of an instance."""
        coordinator_by_group = coordinators.find_coordinators_of_instance(self._cluster, instance_id, GROUP, groups)
        ids_by_broker = coordinators.ids_by_broker(coordinator_by_group)
        requests = {number: offsets.offset_fetch_request(ids) for number, ids in ids_by_broker.items()}
        responses = scatter(pair_with_targets(targets(self._cluster, instance_id), requests)).responses
        tenant_names = {topic.name for _, response in responses for group in response.groups for topic in group.topics}
        return {internal_topic(instance_id, name): name for name in tenant_names}

    def end_offsets(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Returns the log end offset of each partition. Topics are internal names."""
        return offsets.query_offsets(self._targets, partitions, LATEST)
