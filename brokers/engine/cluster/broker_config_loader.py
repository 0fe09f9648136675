"""Reads operators' settings of running brokers; unreadable documents are logged and ignored (QUO-75)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import structlog

from brokers.contract import documents, paths
from brokers.engine.cluster import loader
from brokers.engine.cluster.broker_configs import usable
from brokers.engine.cluster.tree import Tree

log = structlog.get_logger(__name__)


def ids_of(names: Iterable[str]) -> list[int | None]:
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


async def read(tree: Tree, ids: Sequence[int | None]) -> dict[int | None, Mapping[str, str]]:
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
