"""Which function answers which call. What is advertised must be here; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from brokers.engine.handlers.auditing.audited import with_audit
from brokers.engine.handlers.auth import acls, scram_credentials, users
from brokers.engine.handlers.cluster import (
    allot_storage,
    api_versions,
    describe_cluster,
    elections,
    log_dirs,
    reassignments,
    report_flow,
)
from brokers.engine.handlers.common.chunked_encoding import in_chunks
from brokers.engine.handlers.common.fresh_topics import with_fresh_topics
from brokers.engine.handlers.common.turns import Shape, in_turns, results_of
from brokers.engine.handlers.configs import alter_configs, client_quotas, describe_configs
from brokers.engine.handlers.context import Handler
from brokers.engine.handlers.fetch import fetch, legacy, list_offsets, offset_for_leader_epoch
from brokers.engine.handlers.groups import coordinator_forwarding, describe_groups, find_coordinator, membership
from brokers.engine.handlers.offsets import deletion, offsets, transactional
from brokers.engine.handlers.produce import legacy as produce_legacy
from brokers.engine.handlers.produce import produce
from brokers.engine.handlers.session import DispatchTable, FastCodec
from brokers.engine.handlers.state_writes import STATE_WRITES, paid_first
from brokers.engine.handlers.topics import create_partitions, delete_records, metadata, topics
from brokers.engine.handlers.transactions import (
    add_partitions,
    describe_producers,
    listing,
    producer_ids,
    transactions,
    write_markers,
)
from brokers.engine.protocol.apis import ADVERTISED_TENANT, FETCH_BATCHES_FROM, PRODUCE_BATCHES_FROM, ApiKey

FAST_CODEC_HANDLERS: Final[Mapping[int, FastCodec]] = {
    int(ApiKey.PRODUCE): FastCodec(produce.produce, PRODUCE_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.PRODUCE][1]),
    int(ApiKey.FETCH): FastCodec(fetch.fetch, FETCH_BATCHES_FROM, ADVERTISED_TENANT[ApiKey.FETCH][1]),
}

LEGACY_HANDLERS: Final[Mapping[int, Callable[..., None]]] = {
    int(ApiKey.PRODUCE): produce_legacy.produce_old,
    int(ApiKey.FETCH): legacy.fetch_old,
}

_OURS: Final[Mapping[int, Handler]] = {
    int(ApiKey.API_VERSIONS): api_versions.api_versions,
    int(ApiKey.LIST_OFFSETS): list_offsets.list_offsets,
    int(ApiKey.METADATA): metadata.metadata,
    int(ApiKey.OFFSET_COMMIT): offsets.offset_commit,
    int(ApiKey.OFFSET_FETCH): offsets.offset_fetch,
    int(ApiKey.FIND_COORDINATOR): find_coordinator.find_coordinator,
    int(ApiKey.JOIN_GROUP): membership.join_group,
    int(ApiKey.HEARTBEAT): membership.heartbeat,
    int(ApiKey.LEAVE_GROUP): membership.leave_group,
    int(ApiKey.SYNC_GROUP): membership.sync_group,
    int(ApiKey.DESCRIBE_GROUPS): describe_groups.describe_groups,
    int(ApiKey.LIST_GROUPS): describe_groups.list_groups,
    int(ApiKey.OFFSET_DELETE): deletion.offset_delete,
    int(ApiKey.DELETE_GROUPS): deletion.delete_groups,
    int(ApiKey.DESCRIBE_CLUSTER): describe_cluster.describe_cluster,
    int(ApiKey.CREATE_TOPICS): topics.create_topics,
    int(ApiKey.DELETE_TOPICS): topics.delete_topics,
    int(ApiKey.DELETE_RECORDS): delete_records.delete_records,
    int(ApiKey.CREATE_PARTITIONS): create_partitions.create_partitions,
    int(ApiKey.OFFSET_FOR_LEADER_EPOCH): offset_for_leader_epoch.offset_for_leader_epoch,
    int(ApiKey.ELECT_LEADERS): elections.elect_leaders,
    int(ApiKey.ALTER_PARTITION_REASSIGNMENTS): reassignments.alter_partition_reassignments,
    int(ApiKey.LIST_PARTITION_REASSIGNMENTS): reassignments.list_partition_reassignments,
    int(ApiKey.INIT_PRODUCER_ID): producer_ids.init_producer_id,
    int(ApiKey.ADD_PARTITIONS_TO_TXN): add_partitions.add_partitions_to_txn,
    int(ApiKey.ADD_OFFSETS_TO_TXN): transactions.add_offsets_to_txn,
    int(ApiKey.END_TXN): transactions.end_txn,
    int(ApiKey.TXN_OFFSET_COMMIT): transactional.txn_offset_commit,
    int(ApiKey.ALLOT_STORAGE): allot_storage.allot_storage,
    int(ApiKey.REPORT_FLOW): report_flow.report_flow,
    int(ApiKey.CHARGE_POOLS): report_flow.charge_pools,
    int(ApiKey.WRITE_TXN_MARKERS): write_markers.write_txn_markers,
    int(ApiKey.DESCRIBE_PRODUCERS): describe_producers.describe_producers,
    int(ApiKey.DESCRIBE_TRANSACTIONS): listing.describe_transactions,
    int(ApiKey.LIST_TRANSACTIONS): listing.list_transactions,
    int(ApiKey.DESCRIBE_ACLS): acls.describe_acls,
    int(ApiKey.CREATE_ACLS): acls.create_acls,
    int(ApiKey.DELETE_ACLS): acls.delete_acls,
    int(ApiKey.DESCRIBE_CONFIGS): describe_configs.describe_configs,
    int(ApiKey.DESCRIBE_LOG_DIRS): log_dirs.describe_log_dirs,
    int(ApiKey.ALTER_CONFIGS): alter_configs.alter_configs,
    int(ApiKey.INCREMENTAL_ALTER_CONFIGS): alter_configs.incremental_alter_configs,
    int(ApiKey.DESCRIBE_CLIENT_QUOTAS): client_quotas.describe_client_quotas,
    int(ApiKey.ALTER_CLIENT_QUOTAS): client_quotas.alter_client_quotas,
    int(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS): scram_credentials.describe_user_scram_credentials,
    int(ApiKey.ALTER_USER_SCRAM_CREDENTIALS): scram_credentials.alter_user_scram_credentials,
    int(ApiKey.DESCRIBE_USERS): users.describe_users,
    int(ApiKey.ALTER_USERS): users.alter_users,
}

_HERE_OR_ELSEWHERE: Final = coordinator_forwarding.with_forwarding(
    {key: paid_first(handler) if key in STATE_WRITES else handler for key, handler in _OURS.items()}
)

_TOPICS: Final = Shape("topics", "topics", "partitions", "partitions")
# Together they are one record batch, which is written or refused as a whole.
_COMMITS: Final = _TOPICS._replace(lines_max=500)
# Each is hashed, which takes up to 0.1 ms.
_IDS_PER_TURN_MAX: Final = 40

# Calls whose items are independent of each other, with where their long lists are. Others count items over the whole
# request, and take turns by themselves.
SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.LIST_OFFSETS: _TOPICS,
    ApiKey.OFFSET_COMMIT: _COMMITS,
    ApiKey.TXN_OFFSET_COMMIT: _COMMITS,
    ApiKey.OFFSET_DELETE: _TOPICS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _TOPICS,
    ApiKey.DELETE_RECORDS: _TOPICS,
    ApiKey.FIND_COORDINATOR: Shape("coordinator_keys", "coordinators", lines_max=_IDS_PER_TURN_MAX),
    ApiKey.DELETE_GROUPS: Shape("groups_names", "results", lines_max=_IDS_PER_TURN_MAX),
}


# In the order in which they lie around each other: passed on to others, in turns, written to the audit log, answered in
# chunks, and all of it after a look for topics that are not known yet.
_AUDITED_HANDLERS: Final = with_audit(
    {
        **_HERE_OR_ELSEWHERE,
        **{int(api_key): in_turns(_HERE_OR_ELSEWHERE[int(api_key)], shape) for api_key, shape in SHAPES.items()},
    }
)

_LINES: Final[Mapping[ApiKey, Callable[[Any], int]]] = {
    **{api_key: results_of(shape) for api_key, shape in SHAPES.items()},
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions.lines_answered,
    ApiKey.OFFSET_FETCH: offsets.partitions_fetched,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.settings_described,
    ApiKey.DESCRIBE_ACLS: acls.entries_described,
    ApiKey.CREATE_ACLS: acls.entries_made,
    ApiKey.DELETE_ACLS: acls.entries_removed,
    ApiKey.METADATA: metadata.lines_described,
    ApiKey.DESCRIBE_GROUPS: describe_groups.lines_described,
    ApiKey.CREATE_TOPICS: topics.lines_created,
    ApiKey.DELETE_TOPICS: lambda answer: len(answer.responses),
    ApiKey.CREATE_PARTITIONS: lambda answer: len(answer.results),
    ApiKey.ALTER_CONFIGS: lambda answer: len(answer.responses),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda answer: len(answer.responses),
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.lines_described,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.entries_described,
    ApiKey.ALTER_CLIENT_QUOTAS: lambda answer: len(answer.entries),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda answer: len(answer.results),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda answer: len(answer.results),
    ApiKey.LIST_GROUPS: lambda answer: len(answer.groups),
    ApiKey.LIST_TRANSACTIONS: lambda answer: len(answer.transaction_states or ()),
    ApiKey.DESCRIBE_TRANSACTIONS: listing.transactions_described,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.settings_described,
}

HANDLERS: Final[Mapping[int, Handler]] = with_fresh_topics(
    {
        **_AUDITED_HANDLERS,
        **{int(api_key): in_chunks(_AUDITED_HANDLERS[int(api_key)], lines_of) for api_key, lines_of in _LINES.items()},
    }
)

DISPATCH_TABLE: Final = DispatchTable(FAST_CODEC_HANDLERS, LEGACY_HANDLERS, HANDLERS)
