"""Lags of groups, sampled whether somebody looks or not: pages show their trend at once, and alerts have a figure.

One round looks at so many groups and partitions of each cluster and goes on where the round before stopped, so that a
large cluster is sampled less often instead of at a greater cost. Where it stopped is in the cache: losing that costs
nothing but the order. Passed over are groups of too many partitions, and those of topics whose names are so long that
the cluster knows a hash of them: they are sampled while somebody looks, as the instance's owner.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from django.core.cache import cache

from brokers.dataplane.lags import ClusterLags
from brokers.limits import LAG_GROUPS_PER_ROUND_MAX, LAG_PARTITIONS_PER_ROUND_MAX
from brokers.models import Cluster
from instances import lag_history
from instances.group_ports import Committed, Partition
from instances.limits import LAG_PARTITIONS_PER_GROUP_MAX
from instances.naming import plain_topic, split_internal
from tenants.errors import DomainError

logger = logging.getLogger(__name__)

CURSOR_KEPT_S = 3_600


class Lags(Protocol):
    """What a round asks of a cluster; `brokers.dataplane.lags.ClusterLags`."""

    def group_ids(self) -> list[str]: ...
    def committed(self, ids: Sequence[str]) -> Mapping[str, tuple[Committed, ...]]: ...
    def ends(self, places: set[Partition]) -> Mapping[Partition, int]: ...


def sample_all(now_ms: int) -> int:
    """A round over every cluster; returns how many groups were sampled."""
    sampled = 0
    for cluster in Cluster.objects.order_by("pk"):
        try:
            sampled += sample(cluster.pk, ClusterLags(cluster), now_ms)
        except DomainError as error:
            logger.info("lags of cluster %s are not sampled: %s", cluster.pk, error.detail)
    return sampled


def sample(cluster_id: str, lags: Lags, now_ms: int) -> int:
    """A round over one cluster."""
    key = f"lags:{cluster_id}:cursor"
    ids = next_ids(lags.group_ids(), cache.get(key, ""))
    if not ids:
        return 0
    committed = lags.committed(ids)
    taken = within_limits(ids, committed)
    cache.set(key, taken[-1] if taken else ids[-1], CURSOR_KEPT_S)
    shown = [one for one in taken if all(plain_topic(place.topic) for place in committed.get(one, ()))]
    ends = lags.ends({place.place for one in shown for place in committed.get(one, ())})
    ends_of: dict[str | None, dict[Partition, int]] = defaultdict(dict)
    for place, end in ends.items():
        ends_of[split_internal(place[0])[0]][place] = end
    for instance_id, groups in _by_instance(shown).items():
        found = {
            group: _told({one.place: one.offset for one in committed.get(internal, ())})
            for group, internal in groups.items()
        }
        lag_history.note(instance_id, found, _told(ends_of[instance_id]), now_ms)
    return len(taken)


def next_ids(ids: Sequence[str], after: str) -> list[str]:
    """As many as a round takes, behind `after` and round again from the first. `ids` are in order. Pure."""
    later = [one for one in ids if one > after]
    return [*later, *(one for one in ids if one <= after)][:LAG_GROUPS_PER_ROUND_MAX]


def within_limits(ids: Sequence[str], committed: Mapping[str, Sequence[Committed]]) -> list[str]:
    """The first groups whose partitions a round may ask for; one that is too large for any is passed over. Pure."""
    taken: list[str] = []
    partitions = 0
    for one in ids:
        size = len(committed.get(one, ()))
        if size > LAG_PARTITIONS_PER_GROUP_MAX:
            continue
        partitions += size
        if partitions > LAG_PARTITIONS_PER_ROUND_MAX:
            break
        taken.append(one)
    return taken


def _by_instance(internal_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Instance -> the tenant's id of a group -> its internal id."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for one in internal_ids:
        instance_id, group = split_internal(one)
        assert instance_id is not None
        found[instance_id][group] = one
    return found


def _told(offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """The same under the tenant's names."""
    return {(split_internal(topic)[1], index): offset for (topic, index), offset in offsets.items()}
