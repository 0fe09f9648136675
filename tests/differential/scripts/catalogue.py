"""Every script by its name, which is also the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential.play import Player
from tests.differential.scripts import (
    cluster,
    configs,
    connection,
    fetch,
    fetch_sessions,
    list_offsets,
    metadata,
    partitions,
    produce,
    producers,
    quotas,
    topics,
)

SCRIPTS: Final[dict[str, Callable[[Player], None]]] = {
    "cluster": cluster.script,
    "configs": configs.script,
    "connection": connection.script,
    "fetch": fetch.script,
    "fetch_sessions": fetch_sessions.script,
    "list_offsets": list_offsets.script,
    "metadata": metadata.script,
    "partitions": partitions.script,
    "produce": produce.script,
    "producers": producers.script,
    "quotas": quotas.script,
    "topics": topics.script,
}
