"""Immutable image of the cluster's metadata: a handler uses one image per request and never reads ZooKeeper.

`ClusterImage.with_changes` returns the next image and shares everything that did not change; no part of an image is
modified. Indexes by user names have byte keys as in the protocol, so that a produce finds its topic in one lookup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeGuard, TypeVar

from brokers.contract.acls import AclDocument
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import InstanceDocument
from brokers.contract.oauth import OAuthDocument
from brokers.contract.partitions import NO_LEADER
from brokers.contract.users import UserDocument
from brokers.engine.cluster import stored_bytes
from brokers.engine.cluster.broker_configs import BrokerConfigs
from brokers.engine.cluster.instance_documents import InstanceDocuments
from brokers.engine.cluster.quota_image import QuotaImage
from instances.naming import collision_key

T = TypeVar("T")

NO_BROKER = -1
NO_CONTROLLER = NO_BROKER
# Below all change numbers, which start at 0.
NO_CHANGE = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker with its internal address.

    `epoch` is the czxid of its registration (ZK-6). `stopping` is true if it no longer wants to lead partitions
    (REP-34). `has_tls` is true if its internal listener supports mutual TLS. `call_versions` are pairs of a name of
    Penstock's own calls and the latest version that the broker serves; earlier brokers name none.
    """

    id: int
    host: str
    port: int
    admin_port: int
    rack: str | None
    epoch: int
    stopping: bool = False
    has_tls: bool = False
    software_version: str = ""
    call_versions: tuple[tuple[str, int], ...] = ()

    def latest_version(self, call: str) -> int:
        """Returns the latest version of one of Penstock's own calls that this broker serves; 0 if it names none."""
        return dict(self.call_versions).get(call, 0)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """State of one partition.

    `version` is the version of the state node; None until the controller has written it, while there is no leader.
    `written_at` is the zxid of that write: a leader that registered later is another incarnation (CTL-10). `isr_epochs`
    is more precise, with one broker epoch per member of `isr` (-1 = unknown), or empty; see `incarnations`. `adding`
    and `removing` are empty unless the partition is being reassigned (REP-32); `replicas` then includes both.
    """

    index: int
    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    version: int | None = None
    written_at: int = 0
    isr_epochs: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the reassignment; the current ones if there is none."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True)
class TopicImage:
    """A topic: `name` is internal, and `user_name` is the tenant's name (the same for internal topics of the cluster).

    `produce_ips`, `consume_ips` and `administer_ips` are its allow-lists (CKA-11). `version` is that of
    `/brokers/topics/<t>`. With `is_hidden` its owner has deleted it and may restore it. `identity` is the path of a
    node that exists as long as this topic; a later topic of the same name has another path. It is None for a topic that
    was created without such a node.
    """

    name: str
    user_name: str
    instance_id: str | None
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str]
    produce_ips: tuple[str, ...] = ()
    consume_ips: tuple[str, ...] = ()
    administer_ips: tuple[str, ...] = ()
    deleting: bool = False
    is_hidden: bool = False
    version: int = 0
    identity: str | None = None

    @property
    def has_leaders(self) -> bool:
        """True if every partition has its first state, which CreateTopics waits for (CTL-17)."""
        return all(partition.version is not None for partition in self.partitions)

    @cached_property
    def stored_bytes(self) -> int:
        """Size of the topic's documents in ZooKeeper in bytes."""
        replicas = sum(len(partition.replicas) for partition in self.partitions)
        return stored_bytes.of_topic(self.name, self.user_name, self.config, len(self.partitions), replicas)


class LayoutTotals(NamedTuple):
    """Totals of the partitions of an instance's visible topics: their number by leader and by replica, and `moves`, the
    sum of their leader epochs, which grows with each leader change.
    """

    leaders: Counter[int]
    replicas: Counter[int]
    moves: int


@dataclass(frozen=True)
class InstanceImage:
    """An instance: its document and its topics by the tenant's names, without topics that are being deleted.

    `hidden` has the deleted topics that may be restored, by internal name: clients see none of them, and they count in
    limits and storage like the others.
    """

    id: str
    document: InstanceDocument
    topics: Mapping[bytes, TopicImage]
    topic_names: Mapping[str, str]
    hidden: Mapping[str, TopicImage] = field(default_factory=dict)

    def topic(self, user_name: str) -> TopicImage | None:
        return self.topics.get(user_name.encode())

    @cached_property
    def sorted_names(self) -> tuple[str, ...]:
        """The tenant's names of its topics, sorted."""
        return tuple(sorted(self.topic_names.values()))

    @cached_property
    def stored_topics(self) -> tuple[TopicImage, ...]:
        """Topics that count in the limits of partitions and storage: the visible and the hidden ones."""
        return (*self.topics.values(), *self.hidden.values())

    # `_carry_over` derives the cached values of the following from those of the previous image.

    @cached_property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.stored_topics)

    @cached_property
    def stored_bytes(self) -> int:
        """Size of the documents of all topics in bytes."""
        return sum(topic.stored_bytes for topic in self.stored_topics)

    @cached_property
    def layout_totals(self) -> LayoutTotals:
        totals = LayoutTotals(Counter(), Counter(), 0)
        return _totals_after(totals, [(None, topic) for topic in self.topics.values()])

    @cached_property
    def names_by_collision_key(self) -> Mapping[str, str]:
        """The tenant's names of its topics by `naming.collision_key`."""
        return {collision_key(name): name for name in self.topic_names.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """Changes between one image and the next; a field that is None did not change.

    `topics` and `instances` have the changed entries only, with None for deleted ones. `brokers` and
    `unreadable_topics` are the full sets, and the documents by instance are those of the next image.
    """

    controller_id: int | None = None
    controller_epoch: int | None = None
    flow_master_id: int | None = None
    flow_master_epoch: int | None = None
    brokers: Mapping[int, BrokerInfo] | None = None
    topics: Mapping[str, TopicImage | None] | None = None
    instances: Mapping[str, InstanceDocument | None] | None = None
    quotas: QuotaImage | None = None
    users: InstanceDocuments[UserDocument] | None = None
    acls: InstanceDocuments[AclDocument] | None = None
    certificates: InstanceDocuments[CertificatesDocument] | None = None
    oauth: InstanceDocuments[OAuthDocument] | None = None
    broker_configs: BrokerConfigs | None = None
    config_change: int | None = None
    creations: Mapping[str, int] | None = None
    unreadable_topics: frozenset[str] | None = None


class TopicChanges(NamedTuple):
    """Names of the topics that differ between the topics of two images."""

    before: Mapping[str, TopicImage]
    after: Mapping[str, TopicImage]
    names: Collection[str]


@dataclass(frozen=True)
class ClusterImage:
    """Image of the whole cluster.

    `topics` has all internal names, including topics that are being deleted. `controller_id` and `flow_master_id` are
    -1 if none is elected. `config_change` is the number of the last entry of the config change log that this image
    includes, and `creations` the last creation of partitions by instance (`changes.Reservation`). `unreadable_topics`
    names topics that are missing because their documents were unreadable when the whole cluster was read;
    `unreadable_instances` names such instances. `topic_changes` are the changes since the previous image, so that
    subscribers need not compare thousands of topics to find the changed one.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    flow_master_id: int = NO_BROKER
    flow_master_epoch: int = 0
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    instances: Mapping[str, InstanceImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    quotas: QuotaImage = field(default_factory=QuotaImage)
    users: InstanceDocuments[UserDocument] = field(default_factory=InstanceDocuments)
    acls: InstanceDocuments[AclDocument] = field(default_factory=InstanceDocuments)
    certificates: InstanceDocuments[CertificatesDocument] = field(default_factory=InstanceDocuments)
    oauth: InstanceDocuments[OAuthDocument] = field(default_factory=InstanceDocuments)
    broker_configs: BrokerConfigs = field(default_factory=BrokerConfigs)
    config_change: int = field(default=NO_CHANGE, compare=False)
    creations: Mapping[str, int] = field(default_factory=dict, compare=False)
    unreadable_topics: frozenset[str] = field(default=frozenset(), compare=False)
    unreadable_instances: frozenset[str] = field(default=frozenset(), compare=False)
    topic_changes: TopicChanges | None = field(default=None, compare=False, repr=False)

    def changed_topics(self, before: ClusterImage) -> Collection[str]:
        """Returns the names of topics that were added, changed or removed since an earlier image."""
        if self.topics is before.topics:
            return ()
        changes = self.topic_changes
        if changes is not None and changes.before is before.topics and changes.after is self.topics:
            return changes.names
        removed = [name for name in before.topics if name not in self.topics]
        return removed + [name for name, topic in self.topics.items() if before.topics.get(name) is not topic]

    def is_topic_deleted(self, internal_name: str) -> bool:
        """True if the topic does not exist or is being deleted; an unreadable topic record must not be taken for a
        deletion.
        """
        topic = self.topics.get(internal_name)
        return internal_name not in self.unreadable_topics if topic is None else topic.deleting

    def is_instance_deleted(self, instance_id: str) -> bool:
        """True if the instance does not exist; an unreadable document must not be taken for a deletion."""
        return instance_id not in self.instances and instance_id not in self.unreadable_instances

    @cached_property
    def topics_by_encoded_name(self) -> Mapping[bytes, TopicImage]:
        """Topics that are not being deleted by internal names as bytes, for requests of the cluster itself."""
        return {name.encode(): topic for name, topic in self.topics.items() if not topic.deleting}

    def with_changes(self, delta: ImageDelta) -> ClusterImage:
        """Returns the image that follows this one when `delta` is applied."""
        topics, instances = delta.topics or {}, delta.instances or {}
        next_topics, next_by_id, topic_changes = self.topics, self.topics_by_id, self.topic_changes
        if topics:
            next_topics, next_by_id = _apply_topics(self.topics, self.topics_by_id, topics)
            names = [name for name, topic in topics.items() if self.topics.get(name) is not topic]
            topic_changes = TopicChanges(self.topics, next_topics, names)
        next_quotas = self.quotas if delta.quotas is None else delta.quotas
        next_users, next_acls = delta.users or self.users, delta.acls or self.acls
        next_certificates, next_oauth = delta.certificates or self.certificates, delta.oauth or self.oauth
        creations = {**self.creations, **(delta.creations or {})}
        deleted = [id for id, document in instances.items() if document is None]
        return replace(
            self,
            controller_id=_or(delta.controller_id, self.controller_id),
            controller_epoch=_or(delta.controller_epoch, self.controller_epoch),
            flow_master_id=_or(delta.flow_master_id, self.flow_master_id),
            flow_master_epoch=_or(delta.flow_master_epoch, self.flow_master_epoch),
            brokers=_or(delta.brokers, self.brokers),
            topics=next_topics,
            topics_by_id=next_by_id,
            instances=_apply_instances(self, next_topics, topics, instances),
            quotas=next_quotas.without(deleted) if deleted else next_quotas,
            users=next_users.without(deleted) if deleted else next_users,
            acls=next_acls.without(deleted) if deleted else next_acls,
            certificates=next_certificates.without(deleted) if deleted else next_certificates,
            oauth=next_oauth.without(deleted) if deleted else next_oauth,
            broker_configs=_or(delta.broker_configs, self.broker_configs),
            config_change=_or(delta.config_change, self.config_change),
            creations=_without(creations, deleted) if delta.creations or deleted else self.creations,
            unreadable_topics=_or(delta.unreadable_topics, self.unreadable_topics),
            unreadable_instances=self.unreadable_instances.difference(instances),
            topic_changes=topic_changes,
        )


def _or(changed: T | None, present: T) -> T:
    return present if changed is None else changed


def _without(creations: dict[str, int], instance_ids: Iterable[str]) -> dict[str, int]:
    for instance_id in instance_ids:
        creations.pop(instance_id, None)
    return creations


def _apply_topics(
    topics: Mapping[str, TopicImage], by_id: Mapping[bytes, TopicImage], changes: Mapping[str, TopicImage | None]
) -> tuple[dict[str, TopicImage], dict[bytes, TopicImage]]:
    next_topics, next_by_id = dict(topics), dict(by_id)
    for name, topic in changes.items():
        before = next_topics.pop(name, None)
        if before is not None:
            next_by_id.pop(before.topic_id, None)
        if topic is not None:
            next_topics[name] = topic
            if not topic.deleting:
                next_by_id[topic.topic_id] = topic
    return next_topics, next_by_id


def _apply_instances(
    image: ClusterImage,
    topics: Mapping[str, TopicImage],
    topic_changes: Mapping[str, TopicImage | None],
    documents: Mapping[str, InstanceDocument | None],
) -> Mapping[str, InstanceImage]:
    instances = dict(image.instances)
    for instance_id in [id for id, document in documents.items() if document is None]:
        instances.pop(instance_id, None)
    added = {id: document for id, document in documents.items() if document is not None and id not in instances}
    for instance_id, document in documents.items():
        if document is not None and instance_id in instances:
            instances[instance_id] = replace(instances[instance_id], document=document)

    # A new instance gets all its existing topics; a known one gets only the changed ones.
    by_instance: dict[str, list[tuple[TopicImage | None, TopicImage | None]]] = {}
    if added:
        for existing in topics.values():
            if existing.instance_id in added:
                by_instance.setdefault(existing.instance_id, []).append((None, existing))
        for instance_id, document in added.items():
            instances[instance_id] = InstanceImage(instance_id, document, {}, {})
    for name, after in topic_changes.items():
        before = image.topics.get(name)
        topic = after or before
        if topic is not None and topic.instance_id in instances and topic.instance_id not in added:
            by_instance.setdefault(topic.instance_id, []).append((before, after))
    for instance_id, pairs in by_instance.items():
        instances[instance_id] = _with_topics(instances[instance_id], pairs)
    return instances


TopicPair = tuple[TopicImage | None, TopicImage | None]


def _with_topics(instance: InstanceImage, pairs: Collection[TopicPair]) -> InstanceImage:
    """Returns the instance with changed topics; a pair is a topic before and after, None where it does not exist."""
    topics, names, hidden = dict(instance.topics), dict(instance.topic_names), dict(instance.hidden)
    for before, after in pairs:
        if before is not None:
            topics.pop(before.user_name.encode(), None)
            names.pop(before.name, None)
            hidden.pop(before.name, None)
        if after is None or after.deleting:
            continue
        if after.is_hidden:
            hidden[after.name] = after
        else:
            topics[after.user_name.encode()] = after
            names[after.name] = after.user_name
    result = replace(instance, topics=topics, topic_names=names, hidden=hidden)
    _carry_over(instance, result, pairs)
    return result


def _carry_over(before: InstanceImage, after: InstanceImage, pairs: Collection[TopicPair]) -> None:
    """Derives cached totals of `after` from those of `before`: adding up thousands of topics after each change of one
    would take milliseconds of every broker's event loop.
    """
    cached, derived = vars(before), vars(after)
    if "partition_count" in cached:
        derived["partition_count"] = before.partition_count + sum(
            _stored_partitions(new) - _stored_partitions(old) for old, new in pairs
        )
    if "stored_bytes" in cached:
        derived["stored_bytes"] = before.stored_bytes + sum(
            _stored_bytes(new) - _stored_bytes(old) for old, new in pairs
        )
    if "layout_totals" in cached:
        derived["layout_totals"] = _totals_after(before.layout_totals, pairs)
    # If names collide, which is possible when two brokers create topics at once, the index is computed from all names.
    if "names_by_collision_key" in cached and len(before.names_by_collision_key) == len(before.topic_names):
        by_key = dict(before.names_by_collision_key)
        for old, _ in pairs:
            if _is_visible(old):
                by_key.pop(collision_key(old.user_name), None)
        by_key.update({collision_key(new.user_name): new.user_name for _, new in pairs if _is_visible(new)})
        derived["names_by_collision_key"] = by_key


def _is_visible(topic: TopicImage | None) -> TypeGuard[TopicImage]:
    return topic is not None and not topic.deleting and not topic.is_hidden


def _stored_partitions(topic: TopicImage | None) -> int:
    return 0 if topic is None or topic.deleting else len(topic.partitions)


def _stored_bytes(topic: TopicImage | None) -> int:
    return 0 if topic is None or topic.deleting else topic.stored_bytes


def _totals_after(totals: LayoutTotals, pairs: Iterable[TopicPair]) -> LayoutTotals:
    leaders, replicas, moves = totals.leaders.copy(), totals.replicas.copy(), totals.moves
    for old, new in pairs:
        for topic, sign in ((old, -1), (new, 1)):
            if not _is_visible(topic):
                continue
            for partition in topic.partitions:
                moves += sign * partition.leader_epoch
                if partition.leader != NO_LEADER:
                    leaders[partition.leader] += sign
                for replica in partition.replicas:
                    replicas[replica] += sign
    return LayoutTotals(+leaders, +replicas, moves)
