"""State of the whole cluster in a broker's metadata, for operators: counts, and partitions page by page.

The counts are computed once for each version of the metadata: polling costs nothing while nothing changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.image import ClusterImage, PartitionImage, TopicImage
from brokers.engine.cluster.incarnations import is_same_incarnation
from brokers.engine.partitions.progress import effective_min_insync_replicas

PAGE_MAX: Final = 500
MIN_ISR_KEY: Final = "min.insync.replicas"
STATES: Final = ("all", "under_replicated", "offline", "under_min_isr", "moving")


def in_sync(partition: PartitionImage, image: ClusterImage) -> tuple[int, ...]:
    """Returns the members of the ISR whose brokers are alive, in the incarnation that joined it."""
    return tuple(id for id in partition.isr if is_same_incarnation(partition, image.brokers, id))


def is_offline(partition: PartitionImage, image: ClusterImage) -> bool:
    """True if the partition has no live leader."""
    return partition.leader == NO_LEADER or partition.leader not in image.brokers


def is_undecided(partition: PartitionImage, image: ClusterImage) -> bool:
    """True if the leader is gone, even for a moment, and the controller has not elected another one."""
    return partition.leader != NO_LEADER and not is_same_incarnation(partition, image.brokers, partition.leader)


def is_under_replicated(partition: PartitionImage, image: ClusterImage) -> bool:
    """True if a replica is not in sync, apart from replicas that are being added."""
    expected = [id for id in partition.replicas if id not in partition.adding]
    present = in_sync(partition, image)
    return any(id not in present for id in expected)


def is_under_min_isr(topic: TopicImage, partition: PartitionImage, image: ClusterImage) -> bool:
    """True if a produce with acks=all is rejected (REP-12). As for the append, the number of replicas is the upper
    bound of the setting.
    """
    minimum = effective_min_insync_replicas(int(topic.config.get(MIN_ISR_KEY, "1")), len(partition.replicas))
    return len(in_sync(partition, image)) < minimum


@dataclass(slots=True)
class ClusterReport:
    """Report of one version of the metadata; the counts are cached until the metadata changes."""

    _of: ClusterImage | None = None
    _counts: dict[str, Any] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def counts(self, image: ClusterImage) -> dict[str, Any]:
        """Returns the numbers of topics, partitions and partitions in each bad state, and each broker's share."""
        self._inspect(image)
        return self._counts

    def page(self, image: ClusterImage, *, state: str, broker: int | None, after: str, limit: int) -> dict[str, Any]:
        """Returns up to `limit` partitions in `state`, on one broker or all, by topic name and index.

        The page starts behind `after`, a `topic/partition` or "", and has the `after` of the next page or None.

        Raises:
            ValueError: the state is unknown, or `after` names no partition.
        """
        if state not in STATES:
            raise ValueError(state)
        self._inspect(image)
        limit = max(1, min(limit, PAGE_MAX))
        result: list[dict[str, Any]] = []
        for topic, partition in self._from(image, after):
            if broker is not None and broker not in partition.replicas:
                continue
            if not _is_in(state, topic, partition, image):
                continue
            if len(result) == limit:
                return {"partitions": result, "next": f"{result[-1]['topic']}/{result[-1]['partition']}"}
            result.append(_row(topic, partition, image))
        return {"partitions": result, "next": None}

    def _from(self, image: ClusterImage, after: str) -> Iterator[tuple[TopicImage, PartitionImage]]:
        name, _, index = after.rpartition("/")
        start = 0
        if after:
            start = bisect_right(self._names, name)
            topic = image.topics.get(name)
            for partition in topic.partitions[int(index) + 1 :] if topic is not None else ():
                yield image.topics[name], partition
        for name in self._names[start:]:
            topic = image.topics[name]
            for partition in topic.partitions:
                yield topic, partition

    def _inspect(self, image: ClusterImage) -> None:
        if self._of is image:
            return
        self._names = sorted(name for name, topic in image.topics.items() if not topic.deleting)
        self._counts = _count(image, self._names)
        self._of = image


def _is_in(state: str, topic: TopicImage, partition: PartitionImage, image: ClusterImage) -> bool:
    match state:
        case "under_replicated":
            return is_under_replicated(partition, image)
        case "offline":
            return is_offline(partition, image)
        case "under_min_isr":
            return is_under_min_isr(topic, partition, image)
        case "moving":
            return partition.is_reassigning
    return True


def _row(topic: TopicImage, partition: PartitionImage, image: ClusterImage) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partition": partition.index,
        "instance_id": topic.instance_id,
        "user_name": topic.user_name,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(in_sync(partition, image)),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
    }


def _count(image: ClusterImage, names: list[str]) -> dict[str, Any]:
    totals = dict.fromkeys(
        ("partitions", "replicas", "under_replicated", "offline", "undecided", "under_min_isr", "moving"), 0
    )
    shares = {id: {"leaders": 0, "preferred": 0, "replicas": 0, "out_of_sync": 0} for id in sorted(image.brokers)}
    empty = {"leaders": 0, "preferred": 0, "replicas": 0, "out_of_sync": 0}
    for name in names:
        topic = image.topics[name]
        for partition in topic.partitions:
            totals["partitions"] += 1
            totals["replicas"] += len(partition.replicas)
            totals["under_replicated"] += is_under_replicated(partition, image)
            totals["offline"] += is_offline(partition, image)
            totals["undecided"] += is_undecided(partition, image)
            totals["under_min_isr"] += is_under_min_isr(topic, partition, image)
            totals["moving"] += partition.is_reassigning
            present = in_sync(partition, image)
            for id in partition.replicas:
                share = shares.setdefault(id, dict(empty))
                share["replicas"] += 1
                share["out_of_sync"] += id not in present
            if partition.leader in shares:
                shares[partition.leader]["leaders"] += 1
            shares[partition.replicas[0]]["preferred"] += 1
    brokers = []
    for id, share in sorted(shares.items()):
        known = image.brokers.get(id)
        brokers.append(
            {
                "id": id,
                "live": known is not None,
                "stopping": known.stopping if known is not None else False,
                "epoch": known.epoch if known is not None else None,
                "rack": known.rack if known is not None else None,
                "version": known.software_version if known is not None else None,
                **share,
            }
        )
    return {
        "controller_id": image.controller_id,
        "controller_epoch": image.controller_epoch,
        "topics": len(names),
        **totals,
        "brokers": brokers,
    }
