"""Every script by its name, which is also the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential.play import Player
from tests.differential.scripts import (
    acls,
    address_quotas,
    alter_configs,
    cluster,
    commits,
    config_values,
    configs,
    connection,
    coordinators,
    delete_records,
    deleted_groups,
    described_groups,
    fetch,
    fetch_sessions,
    first_coordinators,
    full_groups,
    joining,
    large_commits,
    leaving,
    list_offsets,
    log_dirs,
    markers,
    metadata,
    mutation_quotas,
    oauth,
    odd_names,
    offset_expiry,
    old_formats,
    partitions,
    produce,
    producers,
    quotas,
    refused_markers,
    rights,
    sasl,
    scram_users,
    sessions,
    static_members,
    syncing,
    topics,
    transaction_ends,
    transaction_fetch,
    transaction_offsets,
    transaction_partitions,
    transaction_produce,
    transaction_timeouts,
    transaction_views,
    transactional_ids,
    used_up_epochs,
)

SCRIPTS: Final[dict[str, Callable[[Player], None]]] = {
    "address_quotas": address_quotas.script,
    "alter_configs": alter_configs.script,
    "cluster": cluster.script,
    "commits": commits.script,
    "config_values": config_values.script,
    "configs": configs.script,
    "connection": connection.script,
    "coordinators": coordinators.script,
    "delete_records": delete_records.script,
    "deleted_groups": deleted_groups.script,
    "described_groups": described_groups.script,
    "fetch": fetch.script,
    "fetch_sessions": fetch_sessions.script,
    "joining": joining.script,
    "large_commits": large_commits.script,
    "leaving": leaving.script,
    "list_offsets": list_offsets.script,
    "log_dirs": log_dirs.script,
    "markers": markers.script,
    "metadata": metadata.script,
    "mutation_quotas": mutation_quotas.script,
    "odd_names": odd_names.script,
    "old_formats": old_formats.script,
    "partitions": partitions.script,
    "produce": produce.script,
    "producers": producers.script,
    "quotas": quotas.script,
    "refused_markers": refused_markers.script,
    "scram_users": scram_users.script,
    "sessions": sessions.script,
    "static_members": static_members.script,
    "syncing": syncing.script,
    "topics": topics.script,
    "transaction_ends": transaction_ends.script,
    "transaction_fetch": transaction_fetch.script,
    "transaction_offsets": transaction_offsets.script,
    "transaction_partitions": transaction_partitions.script,
    "transaction_produce": transaction_produce.script,
    "transaction_timeouts": transaction_timeouts.script,
    "transaction_views": transaction_views.script,
    "transactional_ids": transactional_ids.script,
}
# In this order on a broker of their own that was started with `record.SETTINGS_APART`.
APART: Final[dict[str, Callable[[Player], None]]] = {
    "first_coordinators": first_coordinators.script,
    "offset_expiry": offset_expiry.script,
    "full_groups": full_groups.script,
}
# On a route that asks who is there (`sasl.ALICE`, `sasl.CAROL`).
AUTHENTICATED: Final[dict[str, Callable[[Player], None]]] = {"oauth": oauth.script, "sasl": sasl.script}
# About who may do what; `record` says what they need of Apache Kafka.
AUTHORISED: Final[dict[str, Callable[[Player], None]]] = {
    "acls": acls.script,
    "rights": rights.script,
}
# A minute each; played on demand (`PENSTOCK_DIFFERENTIAL_LONG=1`).
LONG: Final[dict[str, Callable[[Player], None]]] = {
    "used_up_epochs": used_up_epochs.script,
}
