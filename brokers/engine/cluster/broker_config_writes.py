"""Writes settings of running brokers: document and change node in one compare-and-set (ZK-13, ZK-32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from brokers.contract import documents, paths
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.broker_configs import usable
from brokers.engine.cluster.tree import BadVersion, Create, Node, NodeExists, NoNode, Operation, Set, Tree

Change = Callable[[dict[str, str]], dict[str, str]]


class AlteredBrokerConfig(NamedTuple):
    """The settings as stored, and the number of the config change that announces them
    (`ClusterImage.config_change`).
    """

    config: dict[str, str]
    change: int


async def alter(tree: Tree, broker_id: int | None, change: Change) -> AlteredBrokerConfig:
    """Applies `change` to the settings of one broker, or with None to those of all; it may run again after a lost race.

    Raises:
        errors.Conflict: concurrent writes prevented every attempt.
    """
    path = paths.broker_config(broker_id)
    announcement = changes.config_changed(paths.broker_config_entity(broker_id))
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        config = change(_stored(node))
        body = documents.config_to_json(config)
        write: Operation = Create(path, body) if node is None else Set(path, body, node.version)
        try:
            written = await tree.commit([write, announcement])
        except (BadVersion, NodeExists, NoNode):
            continue
        return AlteredBrokerConfig(config, changes.change_number(written))
    raise errors.Conflict("The settings of the broker could not be changed.")


def _stored(node: Node | None) -> dict[str, str]:
    """Returns the stored settings; an unreadable document counts as empty and is replaced."""
    if node is None or not node.data:
        return {}
    try:
        return usable(documents.config_from_json(node.data))
    except (ValueError, TypeError, AttributeError):
        return {}
