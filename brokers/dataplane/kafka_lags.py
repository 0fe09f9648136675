"""Data for the lags of the groups of instances on a Kafka cluster: gateways answer for one instance at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kafka.protocol.admin.groups import ListGroupsRequest

from brokers.dataplane import coordinators, offsets
from brokers.dataplane.coordinators import GROUP
from brokers.dataplane.groups import LIST_GROUPS_VERSION
from brokers.dataplane.scatter import Target, pair_with_targets, scatter, targets
from brokers.models import Cluster
from instances.groups.interfaces import LATEST, CommittedOffset, Partition
from instances.naming import internal_scoped, internal_topic, split_internal
from tenants.containment import contained


class KafkaClusterLags:
    """Reader of the groups of some instances of a Kafka cluster and of the log end offsets that they are compared with.

    `next_instances` returns the ids of the instances whose groups are listed next. Results are by internal names, as
    those of `ClusterLags`. An instance whose gateways do not answer is left out.
    """

    is_partial = True

    def __init__(self, cluster: Cluster, next_instances: Callable[[], Sequence[str]]) -> None:
        self._cluster = cluster
        self._next_instances = next_instances
        self._targets: dict[str, dict[int, Target]] = {}
        # Tenants' names of topics with commits, by internal name.
        self._topic_names: dict[str, str] = {}

    def group_ids(self) -> list[str]:
        """Returns the internal ids of the groups of the next instances, sorted."""
        result: set[str] = set()
        for instance_id in self._next_instances():
            requests = [
                (target, ListGroupsRequest(states_filter=[], version=LIST_GROUPS_VERSION))
                for target in self._targets_of(instance_id).values()
            ]
            with contained("lags.instance_failed", instance_id=instance_id):
                for _, response in scatter(requests).responses:
                    result.update(internal_scoped(instance_id, group.group_id) for group in response.groups)
        return sorted(result)

    def committed_offsets(self, ids: Sequence[str]) -> Mapping[str, tuple[CommittedOffset, ...]]:
        """Returns the committed offsets of groups by internal names."""
        result: dict[str, tuple[CommittedOffset, ...]] = {}
        for instance_id, groups in _by_instance(ids).items():
            with contained("lags.instance_failed", instance_id=instance_id):
                by_group = coordinators.find_coordinators_of_instance(self._cluster, instance_id, GROUP, groups)
                placements = coordinators.ids_by_broker(by_group)
                requests = {number: offsets.offset_fetch_request(names) for number, names in placements.items()}
                for _, response in scatter(pair_with_targets(self._targets_of(instance_id), requests)).responses:
                    for group in response.groups:
                        if not group.error_code:
                            internal_id = internal_scoped(instance_id, group.group_id)
                            result[internal_id] = self._internal(instance_id, offsets.committed_offsets(group))
        return result

    def topic_names(self, instance_id: str, groups: Sequence[str]) -> Mapping[str, str]:
        """Returns the tenant's names by internal topic, for topics with commits that were read before."""
        return {internal: name for internal, name in self._topic_names.items() if _owner(internal) == instance_id}

    def end_offsets(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Returns log end offsets by internal names, of topics with commits that were read before."""
        by_instance: dict[str, dict[Partition, Partition]] = defaultdict(dict)
        for internal, index in partitions:
            by_instance[_owner(internal)][self._topic_names[internal], index] = internal, index
        result: dict[Partition, int] = {}
        for instance_id, internal_partitions in by_instance.items():
            with contained("lags.instance_failed", instance_id=instance_id):
                ends = offsets.query_offsets(self._targets_of(instance_id), internal_partitions, LATEST)
                result.update({internal_partitions[partition]: end for partition, end in ends.items()})
        return result

    def _internal(self, instance_id: str, committed: Sequence[CommittedOffset]) -> tuple[CommittedOffset, ...]:
        """Returns the offsets with internal topic names, and remembers the tenant's names."""
        result = []
        for offset in committed:
            internal = internal_topic(instance_id, offset.topic)
            self._topic_names[internal] = offset.topic
            result.append(replace(offset, topic=internal))
        return tuple(result)

    def _targets_of(self, instance_id: str) -> dict[int, Target]:
        if instance_id not in self._targets:
            self._targets[instance_id] = targets(self._cluster, instance_id)
        return self._targets[instance_id]


def _owner(internal: str) -> str:
    instance_id, _ = split_internal(internal)
    assert instance_id is not None, "a name of an instance"
    return instance_id


def _by_instance(internal_ids: Iterable[str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = defaultdict(list)
    for internal_id in internal_ids:
        instance_id = _owner(internal_id)
        result[instance_id].append(internal_id.removeprefix(f"{instance_id}."))
    return result
