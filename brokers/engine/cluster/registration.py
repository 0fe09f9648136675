"""Writes of a broker about itself: required paths, registration, acknowledgements, producer id blocks."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from brokers.contract import paths
from brokers.contract.documents import BrokerDocument, InstanceAck
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.tree import BadVersion, Create, Delete, Node, NodeExists, NoNode, Operation, Set, Tree

PRODUCER_IDS_PER_BLOCK = 1000
PRODUCER_ID_MAX = 2**63 - 1


async def prepare(tree: Tree, cluster_id: str) -> None:
    """Creates the required paths, and the cluster id if there is none yet (ZK-2, ZK-5).

    Raises:
        errors.Conflict: this tree belongs to another cluster.
    """
    required: list[str] = []
    for path in paths.PERSISTENT_AT_START:
        parts = path.strip("/").split("/")
        required += ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    required = list(dict.fromkeys([*required, "/cluster"]))
    present = await tree.get_many(required)
    missing = [path for path, node in zip(required, present, strict=True) if node is None]
    # Parents come first in the list, and requests of a session keep their order, so these can be sent at once.
    for outcome in await asyncio.gather(*(tree.commit([Create(path)]) for path in missing), return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, NodeExists):
            raise outcome
    node = await tree.get(paths.CLUSTER_ID)
    if node is None:
        try:
            await tree.commit([Create(paths.CLUSTER_ID, _dump({"version": "1", "id": cluster_id}))])
        except NodeExists:
            node = await tree.get(paths.CLUSTER_ID)
    if node is not None and json.loads(node.data).get("id") != cluster_id:
        raise errors.Conflict(f"{paths.CLUSTER_ID} names another cluster than {cluster_id}")


async def register_broker(tree: Tree, broker_id: int, document: BrokerDocument) -> int:
    """Registers this broker and returns its broker epoch; see `ClusterStore.register_broker`.

    Raises:
        errors.BrokerAlreadyRegistered: another address has this id.
        errors.Conflict: concurrent writes prevented every attempt.
    """
    path = paths.broker(broker_id)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        operations: list[Operation] = []
        if node is not None:
            if node.owner != tree.session_id and not _same_address(node, document):
                raise errors.BrokerAlreadyRegistered(f"broker {broker_id} lives at another address")
            operations.append(Delete(path, node.version))
            # A dead incarnation that was the controller would stay the controller until its session times out.
            controller = await tree.get(paths.CONTROLLER)
            if controller is not None and controller.owner == node.owner != tree.session_id:
                operations.append(Delete(paths.CONTROLLER, controller.version))
        operations.append(Create(path, document.to_json(), ephemeral=True))
        try:
            await tree.commit(operations)
        except (NodeExists, NoNode, BadVersion):
            continue
        written = await tree.get(path)
        if written is not None and written.owner == tree.session_id:
            return written.czxid
    raise errors.Conflict(f"broker {broker_id} could not be registered")


async def announce_stop(tree: Tree, broker_id: int) -> bool:
    """Marks this session's registration as stopping, so that all brokers read it (REP-34).

    The node and so the broker epoch stay the same. Returns False if this session is not registered.
    """
    path = paths.broker(broker_id)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        if node is None or node.owner != tree.session_id:
            return False
        document = replace(BrokerDocument.from_json(node.data), stopping=True)
        try:
            await tree.commit([Set(path, document.to_json(), node.version), changes.broker_announcement(broker_id)])
        except (BadVersion, NoNode):
            continue
        return True
    raise errors.Conflict(f"broker {broker_id} could not announce that it stops")


async def unregister_broker(tree: Tree, broker_id: int) -> None:
    """Deletes the registration if this session owns it."""
    node = await tree.get(paths.broker(broker_id))
    if node is not None and node.owner == tree.session_id:
        try:
            await tree.commit([Delete(paths.broker(broker_id), node.version)])
        except (NoNode, BadVersion):
            return


async def acknowledge(tree: Tree, broker_id: int, instance_id: str, ack: InstanceAck | None) -> None:
    """Writes this broker's acknowledgement of an instance document as an ephemeral node; None deletes it.

    Raises:
        errors.Conflict: concurrent writes prevented every attempt.
    """
    path = paths.instance_ack(instance_id, broker_id)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        operations: list[Operation] = []
        if node is not None and ack is not None and node.owner == tree.session_id:
            if node.data == ack.to_json():
                return
            operations.append(Set(path, ack.to_json(), node.version))
        else:
            if node is not None:
                operations.append(Delete(path, node.version))
            if ack is not None:
                operations.append(Create(path, ack.to_json(), ephemeral=True))
        if not operations:
            return
        try:
            await tree.commit(operations)
        except NoNode:
            if ack is not None:
                await _create_if_missing(tree, paths.instance_acks(instance_id))
        except (NodeExists, BadVersion):
            continue
        else:
            return
    raise errors.Conflict(f"instance {instance_id} could not be acknowledged")


async def next_producer_id_block(tree: Tree, broker_id: int) -> range:
    """Reserves the next PRODUCER_IDS_PER_BLOCK producer ids for this broker only (IDE-1).

    Raises:
        errors.Refused: all producer ids are used up.
        errors.Conflict: concurrent writes prevented every attempt.
    """
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(paths.PRODUCER_ID_BLOCK)
        start = 0 if node is None else int(json.loads(node.data)["block_end"]) + 1
        if start + PRODUCER_IDS_PER_BLOCK - 1 > PRODUCER_ID_MAX:
            raise errors.Refused("producer ids are exhausted")
        body = _dump(
            {
                "version": 1,
                "broker": broker_id,
                "block_start": str(start),
                "block_end": str(start + PRODUCER_IDS_PER_BLOCK - 1),
            }
        )
        write: Operation = (
            Create(paths.PRODUCER_ID_BLOCK, body) if node is None else Set(paths.PRODUCER_ID_BLOCK, body, node.version)
        )
        try:
            await tree.commit([write])
        except (NodeExists, BadVersion, NoNode):
            continue
        return range(start, start + PRODUCER_IDS_PER_BLOCK)
    raise errors.Conflict("no block of producer ids could be reserved")


async def _create_if_missing(tree: Tree, path: str) -> None:
    try:
        await tree.commit([Create(path)])
    except NodeExists:
        return


def _same_address(node: Node, document: BrokerDocument) -> bool:
    try:
        before = BrokerDocument.from_json(node.data)
    except (ValueError, KeyError, TypeError):
        return False
    return (before.host, before.port) == (document.host, document.port)


def _dump(body: dict[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
