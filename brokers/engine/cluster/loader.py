"""Reads nodes of ZooKeeper into values of the image; unreadable documents are logged and ignored (QUO-75, ZK-3)."""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

import structlog

from brokers.contract import documents, paths
from brokers.contract.documents import BrokerDocument, InstanceDocument, InstanceTopicDocument, TopicDocument
from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.client_quotas import quotas_of
from brokers.engine.cluster.elected_roles import Role
from brokers.engine.cluster.image import NO_BROKER, BrokerInfo, PartitionImage, TopicImage
from brokers.engine.cluster.quota_image import AnyEntity, IpEntity, QuotaEntity, QuotaImage
from brokers.engine.cluster.tree import Node, Tree, Watch
from brokers.engine.scheduling.time_slice import yield_to_others
from instances import naming
from quotas.addresses import canonical

log = structlog.get_logger(__name__)

T = TypeVar("T")

TOPIC_ID_BYTES = 16
# For a topic with this many partitions the existing states are listed first: a new topic has none.
LISTED_PARTITIONS_MIN = 50
# Maximum number of documents that are parsed without yielding to the event loop.
PARSED_PER_TURN_MAX = 200
# Attempts to read a topic and its states consistently.
READ_ATTEMPTS_MAX = 3
_ZERO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


class MalformedDocument(Exception):
    """A document exists but is unreadable. What replaces it is decided by the caller."""


def parse_node(path: str, node: Node, parse: Callable[[bytes], T]) -> T:
    """Parses a node.

    Raises:
        MalformedDocument: the node is unreadable, which is logged.
    """
    try:
        return parse(node.data)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        log.warning("document_ignored", path=path, reason=repr(error))
        raise MalformedDocument(path) from error


async def read_brokers(tree: Tree, watch: Watch | None) -> dict[int, BrokerInfo]:
    """Returns the live brokers by id, without those whose registration is unreadable.

    `watch` is called once when a broker joins or leaves.
    """
    names = await tree.children(paths.BROKER_IDS, watch) or []
    ids = sorted(int(name) for name in names if name.isdigit())
    nodes = await tree.get_many([paths.broker(id) for id in ids])
    brokers: dict[int, BrokerInfo] = {}
    for id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        try:
            document = parse_node(paths.broker(id), node, BrokerDocument.from_json)
        except MalformedDocument:
            continue
        brokers[id] = BrokerInfo(
            id=id,
            host=document.host,
            port=document.port,
            admin_port=document.admin_port,
            rack=document.rack,
            epoch=node.czxid,
            stopping=document.stopping,
            has_tls=document.has_tls,
            software_version=document.software_version,
            call_versions=tuple(sorted(document.call_versions.items())),
        )
    return brokers


async def read_role(tree: Tree, role: Role, watch: Watch) -> tuple[int, int]:
    """Returns `(broker id of the role or -1, epoch)` that were valid at the same time.

    Both are written in one transaction; they are read again until the epoch did not change around reading the holder.
    """
    epoch = await _read_epoch(tree, role)
    while True:
        node = await tree.get(role.holder, watch)
        epoch, before = await _read_epoch(tree, role), epoch
        if epoch == before:
            break
    try:
        return NO_BROKER if node is None else parse_node(role.holder, node, role.from_json), epoch
    except MalformedDocument:
        return NO_BROKER, epoch


async def _read_epoch(tree: Tree, role: Role) -> int:
    node = await tree.get(role.epoch)
    try:
        return 0 if node is None else parse_node(role.epoch, node, int)
    except MalformedDocument:
        return 0


async def read_topics(
    tree: Tree, requested: Mapping[str, Set[int] | None], current: Mapping[str, TopicImage]
) -> dict[str, TopicImage | None]:
    """Returns every requested topic, or None if it does not exist.

    `requested` maps a topic to the partitions whose states are read; None reads all. `current` has the topics of the
    current image, which replace malformed documents and provide unchanged partitions.

    A topic's document and its states are read one after the other, and a reassignment, which changes both in one
    transaction, may end in between: then an ISR member in the state is no replica in the document. A leader with such
    an image would not wait for that member, so both are read again, up to `READ_ATTEMPTS_MAX` times in total.
    """
    result = await _read_once(tree, requested, current)
    for _ in range(READ_ATTEMPTS_MAX - 1):
        inconsistent = [
            name
            for name, topic in result.items()
            if topic is not None and not all(map(_is_consistent, topic.partitions))
        ]
        if not inconsistent:
            break
        result |= await _read_once(tree, dict.fromkeys(inconsistent), current)
    return result


def _is_consistent(partition: PartitionImage) -> bool:
    return partition.isr is partition.replicas or set(partition.isr) <= set(partition.replicas)


async def _read_once(
    tree: Tree, requested: Mapping[str, Set[int] | None], current: Mapping[str, TopicImage]
) -> dict[str, TopicImage | None]:
    names = list(requested)
    owned = [name for name in names if naming.split_internal(name)[0] is not None]
    # All four documents are read in one pipeline: each takes a round trip, and clients wait for a topic to appear.
    nodes = await tree.get_many(
        [
            *(paths.topic(name) for name in names),
            *(paths.topic_config(name) for name in names),
            *(paths.topic_deletion(name) for name in names),
            *(paths.instance_topic(naming.split_internal(name)[0] or "", name) for name in owned),
        ]
    )
    count = len(names)
    bodies, configs, markers = nodes[:count], nodes[count : 2 * count], nodes[2 * count : 3 * count]
    owner_nodes = dict(zip(owned, nodes[3 * count :], strict=True))

    parsed: dict[str, TopicDocument] = {}
    result: dict[str, TopicImage | None] = {}
    for name, node in zip(names, bodies, strict=True):
        result[name] = None
        if node is not None:
            try:
                parsed[name] = parse_node(paths.topic(name), node, _topic_document)
            except MalformedDocument:
                result[name] = current.get(name)
    read_indexes = {
        name: _states_to_read(requested[name], document, current.get(name)) for name, document in parsed.items()
    }
    indexes = {
        name: sorted(document.assignment if read_indexes[name] is None else read_indexes[name] or ())
        for name, document in parsed.items()
    }
    partitions = await _partitions_to_read(tree, indexes, current)
    state_nodes = await tree.get_many([paths.partition_state(name, index) for name, index in partitions])
    states = dict(zip(partitions, state_nodes, strict=True))
    parsed_count = 0
    for position, name in enumerate(names):
        if parsed_count >= PARSED_PER_TURN_MAX:
            parsed_count = 0
            await yield_to_others()
        parsed_count += 1 + len(indexes.get(name, ()))
        node, document = bodies[position], parsed.get(name)
        if node is None or document is None:
            continue
        try:
            stored = _TopicNodes(node, configs[position], owner_nodes.get(name), markers[position])
            result[name] = _topic(name, document, stored, states, current.get(name), read_indexes[name])
        except MalformedDocument:
            result[name] = current.get(name)
    return result


def _states_to_read(indexes: Set[int] | None, document: TopicDocument, current: TopicImage | None) -> Set[int] | None:
    """Returns the partitions whose states must be read, None for all, as for a topic that replaced another one."""
    if indexes is None or current is None or current.topic_id != _topic_id(document.topic_id):
        return None
    return indexes & document.assignment.keys()


async def _partitions_to_read(
    tree: Tree, indexes: Mapping[str, Sequence[int]], current: Mapping[str, TopicImage]
) -> list[PartitionKey]:
    """Returns the partitions of these topics whose states must be read; a state created after the listing is announced
    by a change node.
    """
    large = [
        name
        for name, partition_indexes in indexes.items()
        if len(partition_indexes) >= LISTED_PARTITIONS_MIN and (name not in current or not current[name].has_leaders)
    ]
    written = {
        name: set(children or ())
        for name, children in zip(
            large, await tree.children_many([paths.partitions(name) for name in large]) if large else (), strict=True
        )
    }
    return [
        (name, index)
        for name, partition_indexes in indexes.items()
        for index in partition_indexes
        if name not in written or str(index) in written[name]
    ]


async def read_instances(tree: Tree, ids: Sequence[str]) -> dict[str, InstanceDocument | None]:
    """Returns documents by id, None for deleted ones; a malformed one is omitted, so that the previous one stays in
    force.
    """
    nodes = await tree.get_many([paths.instance(id) for id in ids])
    result: dict[str, InstanceDocument | None] = {}
    for number, (id, node) in enumerate(zip(ids, nodes, strict=True), start=1):
        if number % PARSED_PER_TURN_MAX == 0:
            await yield_to_others()
        try:
            result[id] = None if node is None else parse_node(paths.instance(id), node, InstanceDocument.from_json)
        except MalformedDocument:
            continue
    return result


async def read_quotas(
    tree: Tree, entity_paths: Iterable[str], current: QuotaImage
) -> dict[tuple[str, AnyEntity], Mapping[str, float]]:
    """Returns limits by (instance id, entity); an entity that is deleted or has no limit is empty.

    In place of a malformed document or value the `current` limits stay: without a limit the client could use all
    resources.
    """
    requested = list(entity_paths)
    nodes = await tree.get_many([f"/config/{path}" for path in requested])
    result: dict[tuple[str, AnyEntity], Mapping[str, float]] = {}
    for path, node in zip(requested, nodes, strict=True):
        try:
            key = quota_key(path)
        except ValueError as error:
            log.warning("document_ignored", path=f"/config/{path}", reason=repr(error))
            continue
        result[key] = {}
        if node is not None and node.data:
            try:
                config = parse_node(f"/config/{path}", node, documents.config_from_json)
            except MalformedDocument:
                result[key] = current.limits(*key)
                continue
            result[key] = _limits(path, config, quotas_of(key[1]), current.limits(*key))
    return result


async def list_quota_entities(tree: Tree) -> list[str]:
    """Returns every path of a client quota below `/config`, as change nodes name them."""
    users = sorted(await tree.children("/config/users") or [])
    clients = sorted(await tree.children("/config/clients") or [])
    addresses = sorted(await tree.children("/config/ips") or [])
    below = await tree.children_many([f"/config/users/{user}/clients" for user in users])
    pairs = [
        f"users/{user}/clients/{client}"
        for user, children in zip(users, below, strict=True)
        for client in sorted(children or ())
    ]
    of_users = [f"users/{user}" for user in users]
    return [
        *of_users, *pairs, *(f"clients/{client}" for client in clients), *(f"ips/{address}" for address in addresses),
    ]  # fmt: skip


def quota_key(entity_path: str) -> tuple[str, AnyEntity]:
    """Returns (instance id, entity) of a path.

    Raises:
        ValueError: it is not a client quota of an instance.
    """
    if entity_path.startswith("ips/"):
        instance_id, address = paths.ip_quota_entity_parts(entity_path)
        return instance_id, IpEntity(None if address is None else canonical(address))
    instance_id, user, client = paths.quota_entity_parts(entity_path)
    return instance_id, QuotaEntity(
        has_user=user is not None,
        user=user[0] if user is not None else None,
        has_client=client is not None,
        client_id=client[0] if client is not None else None,
    )


def _limits(
    path: str, config: Mapping[str, str], quotas: frozenset[str], current: Mapping[str, float]
) -> dict[str, float]:
    limits: dict[str, float] = {}
    for quota, text in config.items():
        if quota not in quotas:
            continue
        try:
            value = float(text)
        except (TypeError, ValueError):
            value = math.nan
        if math.isfinite(value) and value >= 0:
            limits[quota] = value
            continue
        log.warning("quota_value_ignored", path=f"/config/{path}", quota=quota)
        if quota in current:
            limits[quota] = current[quota]
    return limits


def _topic_document(raw: bytes) -> TopicDocument:
    document = TopicDocument.from_json(raw)
    if sorted(document.assignment) != list(range(len(document.assignment))) or not document.assignment:
        raise ValueError("partitions are not 0..n-1")
    if not all(document.assignment.values()):
        raise ValueError("a partition has no replica")
    _topic_id(document.topic_id)
    return document


def _topic_id(text: str) -> bytes:
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4)) if text else _ZERO_TOPIC_ID
    if len(raw) != TOPIC_ID_BYTES:
        raise ValueError("a topic id has 16 bytes")
    return raw


class _TopicNodes(NamedTuple):
    """Nodes of one topic: its document, its settings, the instance's document of it, and its deletion marker."""

    topic: Node
    config: Node | None
    owner: Node | None
    deletion: Node | None


def _topic(
    name: str,
    document: TopicDocument,
    nodes: _TopicNodes,
    states: Mapping[PartitionKey, Node | None],
    current: TopicImage | None,
    read_indexes: Set[int] | None,
) -> TopicImage:
    config: dict[str, str] = {}
    if nodes.config is not None and nodes.config.data:
        config = parse_node(paths.topic_config(name), nodes.config, documents.config_from_json)
    instance_id, rest = naming.split_internal(name)
    owner: InstanceTopicDocument | None = None
    if nodes.owner is not None and instance_id is not None:
        owner = parse_node(paths.instance_topic(instance_id, name), nodes.owner, InstanceTopicDocument.from_json)
    user_name = owner.name if owner is not None else naming.plain_topic(name)
    if user_name is None:
        log.warning("hashed_topic_without_name", topic=name)
        raise MalformedDocument(name)
    before = current.partitions if current is not None else ()
    return TopicImage(
        name=name,
        user_name=user_name if instance_id is not None else rest,
        instance_id=instance_id,
        topic_id=_topic_id(document.topic_id),
        partitions=tuple(
            _partition(name, index, document, states.get((name, index)), before[index] if index < len(before) else None)
            if read_indexes is None or index in read_indexes or index >= len(before)
            else _with_replicas(before[index], document)
            for index in range(len(document.assignment))
        ),
        config=config,
        produce_ips=owner.produce_ips if owner is not None else (),
        consume_ips=owner.consume_ips if owner is not None else (),
        administer_ips=owner.administer_ips if owner is not None else (),
        deleting=nodes.deletion is not None,
        is_hidden=owner is not None and owner.deleted_topic_id == document.topic_id,
        version=nodes.topic.version,
        identity=paths.topic_identity(name, document.topic_id) if document.identified else None,
    )


def _with_replicas(before: PartitionImage, document: TopicDocument) -> PartitionImage:
    """Returns the partition with the replicas of the document."""
    index = before.index
    replicas = document.assignment[index]
    adding, removing = document.adding.get(index, ()), document.removing.get(index, ())
    is_same = (before.replicas, before.adding, before.removing) == (replicas, adding, removing)
    return before if is_same else replace(before, replicas=replicas, adding=adding, removing=removing)


def _partition(
    name: str, index: int, document: TopicDocument, node: Node | None, before: PartitionImage | None
) -> PartitionImage:
    """Returns `before` itself if it is unchanged: a change of a large topic affects few partitions."""
    if before is not None and node is not None and before.written_at == node.mzxid:
        return _with_replicas(before, document)
    replicas = document.assignment[index]
    adding, removing = document.adding.get(index, ()), document.removing.get(index, ())
    if node is None:
        return PartitionImage(index, replicas, adding=adding, removing=removing)
    state = parse_node(paths.partition_state(name, index), node, documents.PartitionStateDocument.from_json)
    return PartitionImage(
        index=index,
        replicas=replicas,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        # A shared tuple in the usual case halves the memory of a large image.
        isr=replicas if state.isr == replicas else state.isr,
        controller_epoch=state.controller_epoch,
        version=node.version,
        written_at=node.mzxid,
        # A writer that does not support epochs leaves a list of another length, which is ignored.
        isr_epochs=state.isr_broker_epochs if len(state.isr_broker_epochs) == len(state.isr) else (),
        adding=adding,
        removing=removing,
    )
