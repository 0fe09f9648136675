"""Every script by its name, which is also the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential.play import Player
from tests.differential.scripts import (
    alter_configs,
    cluster,
    config_values,
    configs,
    connection,
    delete_records,
    fetch,
    fetch_sessions,
    list_offsets,
    log_dirs,
    metadata,
    old_formats,
    partitions,
    produce,
    producers,
    quotas,
    topics,
)

SCRIPTS: Final[dict[str, Callable[[Player], None]]] = {
    "alter_configs": alter_configs.script,
    "cluster": cluster.script,
    "config_values": config_values.script,
    "configs": configs.script,
    "connection": connection.script,
    "delete_records": delete_records.script,
    "fetch": fetch.script,
    "fetch_sessions": fetch_sessions.script,
    "list_offsets": list_offsets.script,
    "log_dirs": log_dirs.script,
    "metadata": metadata.script,
    "old_formats": old_formats.script,
    "partitions": partitions.script,
    "produce": produce.script,
    "producers": producers.script,
    "quotas": quotas.script,
    "topics": topics.script,
}
