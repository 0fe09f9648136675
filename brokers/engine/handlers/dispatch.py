"""Which function answers which call. What is advertised must be here; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from brokers.engine.handlers import (
    alter_configs,
    cluster,
    configs,
    coordinators,
    delete_records,
    describe_producers,
    elections,
    epochs,
    fetch,
    fetch_old,
    gateway,
    groups,
    groups_shown,
    list_offsets,
    log_dirs,
    markers,
    metadata,
    offsets,
    offsets_admin,
    offsets_transactional,
    partitions_admin,
    produce,
    produce_old,
    producers,
    quotas,
    reassignments,
    topics,
    transaction_listing,
    transaction_partitions,
    transactions,
    versions,
)
from brokers.engine.handlers.context import Handler
from brokers.engine.handlers.pieces import in_chunks
from brokers.engine.protocol.apis import ADVERTISED_TENANT, FETCH_BATCHES_FROM, PRODUCE_BATCHES_FROM, ApiKey


class FastCodec(NamedTuple):
    """A call with a decoder of its own, and the versions it is served in on every listener."""

    handle: Callable[..., None]
    version_min: int
    version_max: int


FAST_CODEC_HANDLERS: Final[Mapping[int, FastCodec]] = {
    int(ApiKey.PRODUCE): FastCodec(produce.produce, PRODUCE_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.PRODUCE][1]),
    int(ApiKey.FETCH): FastCodec(fetch.fetch, FETCH_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.FETCH][1]),
}

# The same calls in the versions before: their record sets are converted on the way.
OLD_HANDLERS: Final[Mapping[int, Callable[..., None]]] = {
    int(ApiKey.PRODUCE): produce_old.produce_old,
    int(ApiKey.FETCH): fetch_old.fetch_old,
}

_OURS: Final[Mapping[int, Handler]] = {
    int(ApiKey.API_VERSIONS): versions.api_versions,
    int(ApiKey.LIST_OFFSETS): list_offsets.list_offsets,
    int(ApiKey.METADATA): metadata.metadata,
    int(ApiKey.OFFSET_COMMIT): offsets.offset_commit,
    int(ApiKey.OFFSET_FETCH): offsets.offset_fetch,
    int(ApiKey.FIND_COORDINATOR): coordinators.find_coordinator,
    int(ApiKey.JOIN_GROUP): groups.join_group,
    int(ApiKey.HEARTBEAT): groups.heartbeat,
    int(ApiKey.LEAVE_GROUP): groups.leave_group,
    int(ApiKey.SYNC_GROUP): groups.sync_group,
    int(ApiKey.DESCRIBE_GROUPS): groups_shown.describe_groups,
    int(ApiKey.LIST_GROUPS): groups_shown.list_groups,
    int(ApiKey.OFFSET_DELETE): offsets_admin.offset_delete,
    int(ApiKey.DELETE_GROUPS): offsets_admin.delete_groups,
    int(ApiKey.DESCRIBE_CLUSTER): cluster.describe_cluster,
    int(ApiKey.CREATE_TOPICS): topics.create_topics,
    int(ApiKey.DELETE_TOPICS): topics.delete_topics,
    int(ApiKey.DELETE_RECORDS): delete_records.delete_records,
    int(ApiKey.CREATE_PARTITIONS): partitions_admin.create_partitions,
    int(ApiKey.OFFSET_FOR_LEADER_EPOCH): epochs.offset_for_leader_epoch,
    int(ApiKey.ELECT_LEADERS): elections.elect_leaders,
    int(ApiKey.ALTER_PARTITION_REASSIGNMENTS): reassignments.alter_partition_reassignments,
    int(ApiKey.LIST_PARTITION_REASSIGNMENTS): reassignments.list_partition_reassignments,
    int(ApiKey.INIT_PRODUCER_ID): producers.init_producer_id,
    int(ApiKey.ADD_PARTITIONS_TO_TXN): transaction_partitions.add_partitions_to_txn,
    int(ApiKey.ADD_OFFSETS_TO_TXN): transactions.add_offsets_to_txn,
    int(ApiKey.END_TXN): transactions.end_txn,
    int(ApiKey.TXN_OFFSET_COMMIT): offsets_transactional.txn_offset_commit,
    int(ApiKey.WRITE_TXN_MARKERS): markers.write_txn_markers,
    int(ApiKey.DESCRIBE_PRODUCERS): describe_producers.describe_producers,
    int(ApiKey.DESCRIBE_TRANSACTIONS): transaction_listing.describe_transactions,
    int(ApiKey.LIST_TRANSACTIONS): transaction_listing.list_transactions,
    int(ApiKey.DESCRIBE_CONFIGS): configs.describe_configs,
    int(ApiKey.DESCRIBE_LOG_DIRS): log_dirs.describe_log_dirs,
    int(ApiKey.ALTER_CONFIGS): alter_configs.alter_configs,
    int(ApiKey.INCREMENTAL_ALTER_CONFIGS): alter_configs.incremental_alter_configs,
    int(ApiKey.DESCRIBE_CLIENT_QUOTAS): quotas.describe_client_quotas,
    int(ApiKey.ALTER_CLIENT_QUOTAS): quotas.alter_client_quotas,
}

_HERE_OR_ELSEWHERE: Final = gateway.with_forwarding(_OURS)

HANDLERS: Final[Mapping[int, Handler]] = {
    **_HERE_OR_ELSEWHERE,
    int(ApiKey.OFFSET_FETCH): in_chunks(_HERE_OR_ELSEWHERE[int(ApiKey.OFFSET_FETCH)], offsets.partitions_fetched),
    int(ApiKey.DESCRIBE_CONFIGS): in_chunks(configs.describe_configs, configs.settings_described),
    int(ApiKey.DESCRIBE_PRODUCERS): in_chunks(
        describe_producers.describe_producers, describe_producers.settings_described
    ),
}
