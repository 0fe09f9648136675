"""Keeps the cluster metadata image up to date: loads everything once, then follows the change logs (ZK-32, ZK-33).

There are five watches for any number of topics: live brokers, controller, flow master, `/ckafka/changes` and
`/config/changes`. A watch only marks what must be read; one task reads, so a burst of changes becomes one read and one
image. Sequence numbers of a log have no gaps: a gap means that nodes were cleaned before this broker read them, and
everything is read again.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import structlog

from brokers.contract import documents, paths
from brokers.contract.documents import InstanceDocument
from brokers.engine.cluster import broker_config_documents, changes, loader
from brokers.engine.cluster import instance_documents_loader as documents_loader
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.elected_roles import CONTROLLER, FLOW_MASTER
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.image import NO_BROKER, NO_CHANGE, ClusterImage, ImageDelta, TopicImage
from brokers.engine.cluster.instance_documents import ACLS, CERTIFICATES, OAUTH, USERS, documents_named_by
from brokers.engine.cluster.quota_image import QuotaImage
from brokers.engine.cluster.tree import Node, Tree
from brokers.engine.scheduling.time_slice import yield_to_others
from quotas.token_bucket import TokenBucket

log = structlog.get_logger(__name__)

RETRY_DELAY_S = 0.5
# Each read costs every broker some milliseconds, even for few changes. Above this burst and rate, consecutive changes
# are read together.
READS_BURST: Final = 20
READS_PER_S: Final = 50
# Maximum number of new instances per image: subscribers process them without yielding to the event loop.
INSTANCES_PER_IMAGE: Final = 250
# Both logs name `brokers/<id>`: one for registrations, the other for operators' settings, which get this prefix.
_BROKER_CONFIG = "config/brokers/"


class Part(enum.Enum):
    """Parts of the tree that a watch can mark for reading."""

    EVERYTHING = enum.auto()
    BROKERS = enum.auto()
    CONTROLLER = enum.auto()
    FLOW_MASTER = enum.auto()
    CHANGES = enum.auto()
    CONFIG_CHANGES = enum.auto()


class _ChangeLogGap(Exception):
    """Change nodes were cleaned before they were read."""


class ClusterWatcher:
    """Reads the tree into images. Call `load` at the start of each session; `run` runs for the life of the process.

    Processes that do not report to the flow master need not follow its election (`follows_flow_master`).
    """

    def __init__(self, tree: Tree, current: CurrentImage, *, follows_flow_master: bool = True) -> None:
        self._tree = tree
        self._follows_flow_master = follows_flow_master
        self._current = current
        self._marked: set[Part] = set()
        self._entities: set[str] = set()
        # Topics that keep their previous image because one of their documents was unreadable.
        self._stale_topics: set[str] = set()
        self._wake = asyncio.Event()
        self._rate_limit = TokenBucket(READS_PER_S, READS_BURST)
        # One read at a time: of two concurrent reads, the older could publish its image last, and it would stay.
        self._reading = asyncio.Lock()
        # Number of complete reads so far, and the number of the one that is being published.
        self.loads_started = 0
        self.last_published_load = 0
        # Number of the last entry read, by log.
        self._last_read = {Part.CHANGES: NO_CHANGE, Part.CONFIG_CHANGES: NO_CHANGE}
        # Number of reads of the change log that `catch_up` has begun.
        self._catch_ups_started = 0
        # Number of the latest one of these that succeeded.
        self._last_catch_up = 0

    def mark(self, part: Part) -> None:
        """Requests that `run` reads a part of the tree again."""
        self._marked.add(part)
        self._wake.set()

    def mark_topics(self, internal_names: Iterable[str]) -> None:
        """Requests another read of topics, for callers that notice a difference between the image and the tree."""
        self._entities.update(f"topics/{name}" for name in internal_names)
        self._wake.set()

    async def load(self) -> ClusterImage:
        """Reads everything, publishes the image and returns it.

        Raises:
            StoreUnavailable: nothing was published.
        """
        async with self._reading:
            return await self._load()

    async def _load(self) -> ClusterImage:
        self.loads_started += 1
        number = self.loads_started
        # Requests from now on are for the next read.
        self._marked.discard(Part.EVERYTHING)
        try:
            with self._positions_restored_on_failure():
                image = await self._load_everything()
        except BaseException:
            self._marked.add(Part.EVERYTHING)
            raise
        self.last_published_load = number
        self._current.publish(image)
        return image

    async def catch_up(self) -> None:
        """Returns when the image has all changes announced before the call; concurrent calls share one read.

        The call may be cancelled: `run` then reads the changes.

        Raises:
            StoreUnavailable: the image is as old as before.
        """
        looks_begun = self._catch_ups_started
        async with self._reading:
            if self._last_catch_up > looks_begun:
                return
            self._catch_ups_started += 1
            number = self._catch_ups_started
            names = await self._tree.children(paths.CHANGES) or []
            newest = max((changes.sequence_of(name) or NO_CHANGE for name in names), default=NO_CHANGE)
            if newest > self._last_read[Part.CHANGES]:
                await self._read_changes()
            self._last_catch_up = number

    async def _read_changes(self) -> None:
        self._marked.discard(Part.CHANGES)
        try:
            await self._refresh({Part.CHANGES}, set())
        except BaseException:
            self.mark(Part.CHANGES)
            raise

    @contextmanager
    def _positions_restored_on_failure(self) -> Iterator[None]:
        """Restores the positions in the logs if the block fails or is cancelled, since nothing was published."""
        last_read = dict(self._last_read)
        try:
            yield
        except BaseException:
            self._last_read = last_read
            raise

    async def run(self) -> None:
        """Reads until cancelled; while ZooKeeper is unavailable the last image and all marks stay."""
        while True:
            await self._wake.wait()
            await self._wait_for_rate_limit()
            self._wake.clear()
            marked, self._marked = self._marked, set()
            entities, self._entities = self._entities, set()
            if not marked and not entities:
                continue
            try:
                async with self._reading:
                    await self._refresh(marked, entities)
            except StoreUnavailable as error:
                self._marked |= marked
                self._entities |= entities
                log.warning("metadata_image_stale", reason=str(error))
                # The session wakes this task when it is back; this covers a request lost without a loss of the session.
                asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._wake.set)

    async def _wait_for_rate_limit(self) -> None:
        """Waits until the next read is within READINGS_PER_S, and counts it."""
        loop = asyncio.get_running_loop()
        if wait_ms := self._rate_limit.wait_ms(int(loop.time() * 1000)):
            await asyncio.sleep(wait_ms / 1000)
        self._rate_limit.charge(1, int(loop.time() * 1000))

    async def _refresh(self, marked: set[Part], entities: set[str]) -> None:
        if Part.EVERYTHING in marked:
            await self._load()
            return
        with self._positions_restored_on_failure():
            await self._read_marked(marked, entities)

    async def _read_marked(self, marked: set[Part], entities: set[str]) -> None:
        image = self._current.image
        brokers = controller = epoch = flow_master = flow_master_epoch = None
        try:
            if Part.CHANGES in marked:
                entities |= await self._read_log(Part.CHANGES)
            if Part.CONFIG_CHANGES in marked:
                entities |= {_documents_only(entity) for entity in await self._read_log(Part.CONFIG_CHANGES)}
        except _ChangeLogGap:
            log.info("change_log_gap")
            await self._load()
            return
        config_change = self._last_read[Part.CONFIG_CHANGES]
        if Part.BROKERS in marked:
            brokers = await loader.read_brokers(self._tree, lambda: self.mark(Part.BROKERS))
        elif any(kind == "brokers" for kind, _ in _split(entities)):
            # A registration was rewritten in place; the watch on registrations is still set.
            brokers = await loader.read_brokers(self._tree, None)
        if Part.CONTROLLER in marked:
            controller, epoch = await self._read_controller()
        if Part.FLOW_MASTER in marked:
            flow_master, flow_master_epoch = await self._read_flow_master()
        topics = _topics(entities)
        # Topics that kept a previous image are read with all partitions, since earlier changes of any may be missing.
        topics |= dict.fromkeys(self._stale_topics & topics.keys())
        result = await loader.read_topics(self._tree, topics, image.topics) if topics else {}
        stale_topics = (self._stale_topics - topics.keys()) | _unchanged_topics(result, image)
        unreadable_topics = image.unreadable_topics
        if reread := unreadable_topics & result.keys():
            unreadable_topics = (unreadable_topics - reread) | await self._find_unreadable(
                name for name in reread if result[name] is None
            )
        instances = [name for kind, name in _split(entities) if kind == "instances"]
        quota_paths = [path for path in entities if path.startswith(("users/", "clients/", "ips/"))]
        quotas = await loader.read_quotas(self._tree, quota_paths, image.quotas) if quota_paths else {}
        documents = await self._changed_documents(image, entities)
        changed = await loader.read_instances(self._tree, instances) if instances else {}
        image = await self._publish_excess(changed)
        # Set together with the image: if the read fails before, these topics still need all their partitions.
        self._stale_topics = stale_topics
        self._current.publish(
            image.with_changes(
                replace(
                    documents,
                    controller_id=controller,
                    controller_epoch=epoch,
                    flow_master_id=flow_master,
                    flow_master_epoch=flow_master_epoch,
                    brokers=brokers,
                    topics=result or None,
                    instances=changed or None,
                    quotas=image.quotas.with_changes(quotas) if quotas else None,
                    config_change=config_change,
                    creations=changes.versions_in(entities),
                    unreadable_topics=unreadable_topics,
                )
            )
        )

    async def _publish_excess(self, changed: dict[str, InstanceDocument | None]) -> ClusterImage:
        """Publishes new instances in parts, removes them from `changed`, and returns the image published last.

        Deleted instances are not published separately: data read together with them must not restore parts of them.
        """
        existing = [id for id, document in changed.items() if document is not None]
        for first in range(INSTANCES_PER_IMAGE, len(existing), INSTANCES_PER_IMAGE):
            ids = existing[first : first + INSTANCES_PER_IMAGE]
            delta = ImageDelta(instances={id: changed.pop(id) for id in ids})
            self._current.publish(self._current.image.with_changes(delta))
            await yield_to_others()
        return self._current.image

    async def _changed_documents(self, image: ClusterImage, entities: Collection[str]) -> ImageDelta:
        """Returns the changed documents of instances and brokers, None for kinds without announced changes."""
        users = await documents_loader.read_users(self._tree, documents_named_by(entities, USERS))
        acls = await documents_loader.read_acls(self._tree, documents_named_by(entities, ACLS))
        certificates = await documents_loader.read_certificates(self._tree, documents_named_by(entities, CERTIFICATES))
        oauth = await documents_loader.read_oauth(self._tree, documents_named_by(entities, OAUTH))
        configured = broker_config_documents.broker_ids_of(
            path.removeprefix(_BROKER_CONFIG) for path in entities if path.startswith(_BROKER_CONFIG)
        )
        broker_configs = await broker_config_documents.read_broker_configs(self._tree, configured) if configured else {}
        return ImageDelta(
            users=image.users.with_changes(users) if users else None,
            acls=image.acls.with_changes(acls) if acls else None,
            certificates=image.certificates.with_changes(certificates) if certificates else None,
            oauth=image.oauth.with_changes(oauth) if oauth else None,
            broker_configs=image.broker_configs.with_changes(broker_configs) if broker_configs else None,
        )

    async def _load_everything(self) -> ClusterImage:
        """Reads everything; the logs come first, so that writes during the read are announced after that point."""
        before = self._current.image
        for part in self._last_read:
            sequences = await self._list_log(part)
            self._last_read[part] = max(sequences, default=NO_CHANGE)
        config_change = self._last_read[Part.CONFIG_CHANGES]
        brokers = await loader.read_brokers(self._tree, lambda: self.mark(Part.BROKERS))
        controller, epoch = await self._read_controller()
        flow_master, flow_master_epoch = await self._read_flow_master()
        creations = await changes.read_versions(self._tree)
        topic_names = sorted(await self._tree.children(paths.TOPICS) or [])
        instance_ids = sorted(await self._tree.children(paths.INSTANCES) or [])
        topics = await loader.read_topics(self._tree, dict.fromkeys(topic_names), before.topics)
        self._stale_topics = _unchanged_topics(topics, before)
        instances = await loader.read_instances(self._tree, instance_ids)
        for id in set(instance_ids) - set(instances):
            if id in before.instances:
                instances[id] = before.instances[id].document
        quotas = await loader.read_quotas(self._tree, await loader.list_quota_entities(self._tree), before.quotas)
        users = await documents_loader.read_all_users(self._tree, instance_ids, before.users)
        acls = await documents_loader.read_all_acls(self._tree, instance_ids, before.acls)
        certificates = await documents_loader.read_all_certificates(self._tree, instance_ids, before.certificates)
        oauth = await documents_loader.read_all_oauth(self._tree, instance_ids, before.oauth)
        configured = broker_config_documents.broker_ids_of(await self._tree.children(paths.BROKER_CONFIGS) or [])
        broker_configs = await broker_config_documents.read_broker_configs(self._tree, configured)
        unreadable_topics = await self._find_unreadable(name for name, topic in topics.items() if topic is None)
        unreadable_instances = frozenset(instance_ids) - instances.keys()
        return ClusterImage(before.cluster_id, unreadable_instances=unreadable_instances).with_changes(
            ImageDelta(
                unreadable_topics=unreadable_topics,
                controller_id=controller,
                controller_epoch=epoch,
                flow_master_id=flow_master,
                flow_master_epoch=flow_master_epoch,
                brokers=brokers,
                topics=topics,
                instances=instances,
                quotas=QuotaImage().with_changes(quotas),
                users=users,
                acls=acls,
                certificates=certificates,
                oauth=oauth,
                broker_configs=before.broker_configs.only(configured).with_changes(broker_configs),
                config_change=config_change,
                creations=creations,
            )
        )

    async def _read_controller(self) -> tuple[int, int]:
        return await loader.read_role(self._tree, CONTROLLER, lambda: self.mark(Part.CONTROLLER))

    async def _read_flow_master(self) -> tuple[int, int]:
        if not self._follows_flow_master:
            return NO_BROKER, 0
        return await loader.read_role(self._tree, FLOW_MASTER, lambda: self.mark(Part.FLOW_MASTER))

    async def _find_unreadable(self, missing: Iterable[str]) -> frozenset[str]:
        """Returns the `missing` topics that still exist, so that their documents are unreadable, not deleted."""
        names = list(missing)
        nodes = await self._tree.get_many([paths.topic(name) for name in names])
        return frozenset(name for name, node in zip(names, nodes, strict=True) if node is not None)

    async def _list_log(self, part: Part, after: int = NO_CHANGE) -> dict[int, str]:
        """Returns the paths of the change nodes with sequence numbers above `after`, by sequence number."""
        prefix = paths.CHANGE_PREFIX if part is Part.CHANGES else paths.CONFIG_CHANGE_PREFIX
        parent, _, name_prefix = prefix.rpartition("/")
        names = await self._tree.children(parent, lambda: self.mark(part)) or []
        # Names of one length sort like their numbers. Thousands were read before, which need not be parsed again.
        last_read = "" if after == NO_CHANGE else changes.node_name(name_prefix, after)
        result = {changes.sequence_of(name): f"{parent}/{name}" for name in names if name > last_read}
        return {sequence: path for sequence, path in result.items() if sequence is not None}

    async def _read_log(self, part: Part) -> set[str]:
        """Returns the entities named by the nodes after the last one seen.

        Raises:
            _ChangeLogGap: some nodes were cleaned before they were read.
        """
        paths_by_sequence = await self._list_log(part, after=self._last_read[part])
        unseen = sorted(sequence for sequence in paths_by_sequence if sequence > self._last_read[part])
        if not unseen:
            return set()
        nodes = await self._tree.get_many([paths_by_sequence[sequence] for sequence in unseen])
        if unseen[0] != self._last_read[part] + 1 or None in nodes:
            raise _ChangeLogGap
        entities: set[str] = set()
        for sequence, node in zip(unseen, nodes, strict=True):
            if node is not None:
                entities.update(_named_entities(part, paths_by_sequence[sequence], node))
        self._last_read[part] = unseen[-1]
        return entities


def _named_entities(part: Part, path: str, node: Node) -> list[str]:
    try:
        if part is Part.CHANGES:
            return loader.parse_node(path, node, documents.change_from_json)
        return [loader.parse_node(path, node, _config_entity)]
    except loader.MalformedDocument:
        return []


def _config_entity(raw: bytes) -> str:
    entity = documents.config_change_from_json(raw)
    return f"config/{entity}" if entity.startswith("brokers/") else entity


def _unchanged_topics(topics: Mapping[str, TopicImage | None], image: ClusterImage) -> set[str]:
    """Returns the topics that were read and kept the object of the previous image."""
    return {name for name, topic in topics.items() if topic is not None and topic is image.topics.get(name)}


def _split(entities: Iterable[str]) -> list[tuple[str, str]]:
    """Returns `kind/name` pairs in order, of entities with exactly two parts."""
    pairs = (entity.split("/") for entity in sorted(entities))
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _documents_only(entity: str) -> str:
    """Returns the entity of a topic's documents for a config change, which does not change partition states."""
    match entity.split("/"):
        case ["topics", name]:
            return f"topics/{name}/"
    return entity


def _topics(entities: Iterable[str]) -> dict[str, set[int] | None]:
    """Returns internal name -> partitions whose states must be read again, None for all.

    Allow-lists of an instance's topic (`instances/<id>/topics/<t>`) count as documents of the topic.
    """
    result: dict[str, set[int] | None] = {}
    for entity in sorted(entities):
        match entity.split("/"):
            case ["topics", name]:
                result[name] = None
            case ["instances", _, "topics", name] | ["topics", name, ""]:
                result.setdefault(name, set())
            case ["topics", name, index] if index.isdecimal():
                indexes = result.setdefault(name, set())
                if indexes is not None:
                    indexes.add(int(index))
    return result
