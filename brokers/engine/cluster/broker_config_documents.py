"""Documents of operators' settings of running brokers: read, and written by compare-and-set with a change node (ZK-13,
ZK-32). Unreadable documents are logged and ignored (QUO-75).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from brokers.contract import documents, paths
from brokers.engine.cluster import changes, errors, loader
from brokers.engine.cluster.broker_configs import usable
from brokers.engine.cluster.tree import BadVersion, Create, Node, NodeExists, NoNode, Operation, Set, Tree

Change = Callable[[dict[str, str]], dict[str, str]]
log = structlog.get_logger(__name__)


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
    announcement = changes.config_announcement(paths.broker_config_entity(broker_id))
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        config = change(_read_overrides(node))
        body = documents.config_to_json(config)
        write: Operation = Create(path, body) if node is None else Set(path, body, node.version)
        try:
            written = await tree.commit([write, announcement])
        except (BadVersion, NodeExists, NoNode):
            continue
        return AlteredBrokerConfig(config, changes.change_number(written))
    raise errors.Conflict("The settings of the broker could not be changed.")


def _read_overrides(node: Node | None) -> dict[str, str]:
    """Returns the stored settings; an unreadable document counts as empty and is replaced."""
    if node is None or not node.data:
        return {}
    try:
        return usable(documents.config_from_json(node.data))
    except (ValueError, TypeError, AttributeError):
        return {}


def broker_ids_of(names: Iterable[str]) -> list[int | None]:
    """Returns the broker ids, None for all brokers, in the names of documents below `/config/brokers`."""
    ids: list[int | None] = []
    for name in names:
        if name == paths.DEFAULT_ENTITY:
            ids.append(None)
        elif name.isdecimal() and str(int(name)) == name:
            ids.append(int(name))
        else:
            log.warning("document_ignored", path=f"{paths.BROKER_CONFIGS}/{name}", reason="not a broker id")
    return ids


async def read_broker_configs(tree: Tree, ids: Sequence[int | None]) -> dict[int | None, Mapping[str, str]]:
    """Returns the settings of these brokers.

    A deleted document is empty; a malformed one is omitted, so that the previous settings stay in force.
    """
    nodes = await tree.get_many([paths.broker_config(id) for id in ids])
    result: dict[int | None, Mapping[str, str]] = {}
    for id, node in zip(ids, nodes, strict=True):
        path = paths.broker_config(id)
        if node is None or not node.data:
            result[id] = {}
            continue
        try:
            config = loader.parse_node(path, node, documents.config_from_json)
        except loader.MalformedDocument:
            continue
        result[id] = usable(config)
        for key in config.keys() - result[id].keys():
            log.warning("broker_setting_ignored", path=path, key=key, reason="not a text")
    return result
