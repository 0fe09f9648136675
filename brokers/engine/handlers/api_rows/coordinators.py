"""Rows of the API table for calls that coordinators of groups and transactions answer."""

from __future__ import annotations

from typing import Any, Final

from brokers.contract.acls import AclOperation
from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.api_rows.shared import (
    BY_PARTITION,
    CLUSTER,
    CLUSTER_ONLY,
    CLUSTER_ONLY_LIST,
    COMMITS,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    READER_POSITION_LIST,
    TOPIC,
    TRANSACTION,
    WRITE,
    element_count,
)
from brokers.engine.handlers.auditing import topics_and_groups as audit_groups
from brokers.engine.handlers.common import fresh_topics
from brokers.engine.handlers.common.long_requests import response_length_by
from brokers.engine.handlers.groups import coordinator_forwarding as forwarding
from brokers.engine.handlers.groups import describe_groups, find_coordinator, membership
from brokers.engine.handlers.groups.coordinator_forwarding import (
    ByVersion,
    ToAllCoordinators,
    ToCoordinator,
    ToEachCoordinator,
)
from brokers.engine.handlers.offsets import deletion, offsets, transactional
from brokers.engine.handlers.served_api import ListField, RequiredAllowList, RequiredRights, ServedApi, SplitLists
from brokers.engine.handlers.transactions import add_partitions, describing, transactions, write_markers
from brokers.engine.protocol import framing as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

_MEMBER: Final = RequiredRights({GROUP: READ}, "members of a group read")
_OPAQUE: Final = RequiredAllowList(
    None, "concerns members of a group: their subscriptions are opaque, and each topic is checked when it is read"
)


def _set_groups(message: Any, items: list[Any]) -> None:
    message.groups = items


def _set_group_names(message: Any, items: list[Any]) -> None:
    message.groups_names = items


def _set_results(message: Any, items: list[Any]) -> None:
    message.results = items


def _set_coordinator_keys(message: Any, items: list[Any]) -> None:
    message.coordinator_keys = items


def _set_coordinators(message: Any, items: list[Any]) -> None:
    message.coordinators = items


_GROUPS: Final = ListField(lambda message: message.groups, _set_groups)
_GROUP_NAMES: Final = ListField(lambda message: message.groups_names, _set_group_names)
_RESULTS: Final = ListField(lambda message: message.results, _set_results)
_COORDINATOR_KEYS: Final = ListField(lambda message: message.coordinator_keys, _set_coordinator_keys)
_COORDINATORS: Final = ListField(lambda message: message.coordinators, _set_coordinators)

# Number of ids of a request that are processed in one turn: each is hashed, which takes up to 0.1 ms.
_IDS_PER_TURN_MAX: Final = 40
_BY_COORDINATOR_KEY: Final = SplitLists(_COORDINATOR_KEYS, _COORDINATORS, None, None, _IDS_PER_TURN_MAX)
_BY_GROUP_NAME: Final = SplitLists(_GROUP_NAMES, _RESULTS, None, None, _IDS_PER_TURN_MAX)

_TO_GROUP: Final = ToCoordinator(find_coordinator.GROUP, forwarding.group_id)
_TO_GROUP_OF_OFFSETS: Final = ToCoordinator(find_coordinator.GROUP, forwarding.group_id_with_offsets)
_OFFSETS_OF_GROUPS: Final = ToEachCoordinator(
    find_coordinator.GROUP, _GROUPS, lambda group: group.group_id, _GROUPS, lambda group: group.group_id
)
_DESCRIBED_GROUPS: Final = ToEachCoordinator(
    find_coordinator.GROUP, _GROUPS, str, _GROUPS, lambda group: group.group_id
)
_DELETED_GROUPS: Final = ToEachCoordinator(
    find_coordinator.GROUP, _GROUP_NAMES, str, _RESULTS, lambda result: result.group_id
)


def _set_transactional_ids(message: Any, items: list[Any]) -> None:
    message.transactional_ids = items


def _set_transaction_states(message: Any, items: list[Any]) -> None:
    message.transaction_states = items


_TRANSACTIONAL_IDS: Final = ListField(lambda message: message.transactional_ids, _set_transactional_ids)
_TRANSACTION_STATES: Final = ListField(lambda message: message.transaction_states, _set_transaction_states)
_TO_TRANSACTION: Final = ToCoordinator(find_coordinator.TRANSACTION, forwarding.transactional_id)
_DESCRIBED_TRANSACTIONS: Final = ToEachCoordinator(
    find_coordinator.TRANSACTION, _TRANSACTIONAL_IDS, str, _TRANSACTION_STATES, lambda state: state.transactional_id
)

ROWS: Final = (
    ServedApi(
        _K.FIND_COORDINATOR,
        find_coordinator.find_coordinator,
        RequiredRights({GROUP: DESCRIBE, TRANSACTION: DESCRIBE}, "by key type"),
        limit=limits.ADMINISTRATION,
        split=_BY_COORDINATOR_KEY,
        response_length=response_length_by(_BY_COORDINATOR_KEY),
    ),
    ServedApi(
        _K.JOIN_GROUP,
        membership.join_group,
        _MEMBER,
        allow_list=_OPAQUE,
        limit=limits.JOIN,
        throttled_first=True,
        forwarding=_TO_GROUP,
    ),
    ServedApi(
        _K.SYNC_GROUP,
        membership.sync_group,
        _MEMBER,
        allow_list=_OPAQUE,
        limit=limits.SYNC,
        throttled_first=True,
        forwarding=_TO_GROUP,
    ),
    ServedApi(_K.HEARTBEAT, membership.heartbeat, _MEMBER, allow_list=_OPAQUE, limit=limits.ONE, forwarding=_TO_GROUP),
    ServedApi(
        _K.LEAVE_GROUP,
        membership.leave_group,
        _MEMBER,
        allow_list=_OPAQUE,
        limit=limits.LEAVE,
        throttled_first=True,
        forwarding=_TO_GROUP,
    ),
    ServedApi(
        _K.DESCRIBE_GROUPS,
        describe_groups.describe_groups,
        RequiredRights({GROUP: DESCRIBE}, "checked for each group"),
        allow_list=_OPAQUE,
        limit=limits.ADMINISTRATION,
        forwarding=_DESCRIBED_GROUPS,
        response_length=element_count(lambda response: response.groups, lambda group: group.members),
    ),
    ServedApi(
        _K.LIST_GROUPS,
        describe_groups.list_groups,
        RequiredRights(
            {GROUP: DESCRIBE},
            "with DESCRIBE on the cluster all groups are listed, else those with DESCRIBE on the group",
            ((DESCRIBE, CLUSTER),),
        ),
        limit=limits.ONE,
        forwarding=ToAllCoordinators(_GROUPS, lambda group: group.group_id),
        response_length=lambda response: len(response.groups),
    ),
    ServedApi(
        _K.DELETE_GROUPS,
        deletion.delete_groups,
        RequiredRights({GROUP: DELETE}, "checked for each group"),
        allow_list=RequiredAllowList(None, "deletes a whole group; OffsetDelete deletes the offsets of single topics"),
        limit=limits.ADMINISTRATION,
        throttled_first=True,
        forwarding=_DELETED_GROUPS,
        split=_BY_GROUP_NAME,
        audit=audit_groups.describe_group_deletion,
        response_length=response_length_by(_BY_GROUP_NAME),
    ),
    ServedApi(
        _K.OFFSET_COMMIT,
        offsets.offset_commit,
        RequiredRights({GROUP: READ, TOPIC: READ}, "the group is checked first, for the whole request"),
        allow_list=READER_POSITION_LIST,
        throttled_first=True,
        forwarding=_TO_GROUP_OF_OFFSETS,
        split=COMMITS,
        named_topics=fresh_topics.topics_with_partitions,
        audit=audit_groups.describe_offset_commit,
        response_length=response_length_by(COMMITS),
    ),
    ServedApi(
        _K.OFFSET_FETCH,
        offsets.offset_fetch,
        RequiredRights({GROUP: DESCRIBE, TOPIC: DESCRIBE}, "a request for all topics omits those without DESCRIBE"),
        allow_list=READER_POSITION_LIST,
        forwarding=ByVersion(forwarding.MANY_GROUPS_FROM, _TO_GROUP_OF_OFFSETS, _OFFSETS_OF_GROUPS),
        response_length=offsets.response_length,
    ),
    ServedApi(
        _K.OFFSET_DELETE,
        deletion.offset_delete,
        RequiredRights({GROUP: DELETE, TOPIC: READ}, "the group is checked first, for the whole request"),
        allow_list=READER_POSITION_LIST,
        throttled_first=True,
        forwarding=_TO_GROUP,
        split=BY_PARTITION,
        named_topics=fresh_topics.topics,
        audit=audit_groups.describe_offset_deletion,
        response_length=response_length_by(BY_PARTITION),
    ),
    ServedApi(
        _K.INIT_PRODUCER_ID,
        transactions.init_producer_id,
        RequiredRights(
            {TRANSACTION: WRITE, CLUSTER: AclOperation.IDEMPOTENT_WRITE},
            "without a transactional id: the cluster, or WRITE on any topic",
            ((WRITE, TOPIC),),
        ),
        limit=limits.ONE,
        throttled_first=True,
        forwarding=_TO_TRANSACTION,
    ),
    ServedApi(
        _K.ADD_PARTITIONS_TO_TXN,
        add_partitions.add_partitions_to_txn,
        RequiredRights({TRANSACTION: WRITE, TOPIC: WRITE}, "all or nothing; the transactional id is checked first"),
        allow_list=RequiredAllowList(Operation.PRODUCE, "announces records"),
        throttled_first=True,
        forwarding=ToCoordinator(find_coordinator.TRANSACTION, forwarding.single_transactional_id),
        named_topics=fresh_topics.topics_of_transaction,
        response_length=add_partitions.response_length,
    ),
    ServedApi(
        _K.ADD_OFFSETS_TO_TXN,
        transactions.add_offsets_to_txn,
        RequiredRights({TRANSACTION: WRITE, GROUP: READ}, "the transactional id first"),
        limit=limits.ONE,
        throttled_first=True,
        forwarding=_TO_TRANSACTION,
    ),
    ServedApi(
        _K.TXN_OFFSET_COMMIT,
        transactional.txn_offset_commit,
        RequiredRights({TRANSACTION: WRITE, GROUP: READ, TOPIC: READ}, "the transactional id first, then the group"),
        allow_list=READER_POSITION_LIST,
        throttled_first=True,
        forwarding=ToCoordinator(find_coordinator.GROUP, forwarding.group_id),
        split=COMMITS,
        named_topics=fresh_topics.topics_with_partitions,
        response_length=response_length_by(COMMITS),
    ),
    ServedApi(
        _K.END_TXN,
        transactions.end_txn,
        RequiredRights({TRANSACTION: WRITE}, "ends a transaction"),
        allow_list=RequiredAllowList(
            None, "names no topic: the records were admitted when written, and readers wait for the end"
        ),
        limit=limits.ONE,
        throttled_first=True,
        forwarding=_TO_TRANSACTION,
    ),
    ServedApi(_K.WRITE_TXN_MARKERS, write_markers.write_txn_markers, CLUSTER_ONLY, allow_list=CLUSTER_ONLY_LIST),
    ServedApi(
        _K.DESCRIBE_PRODUCERS,
        describing.describe_producers,
        RequiredRights({TOPIC: READ}, "shows the producers, and how much they write"),
        allow_list=RequiredAllowList(Operation.CONSUME, "shows the producers, and how much they write"),
        named_topics=fresh_topics.topics,
        response_length=describing.response_length,
    ),
    ServedApi(
        _K.DESCRIBE_TRANSACTIONS,
        describing.describe_transactions,
        RequiredRights(
            {TRANSACTION: DESCRIBE, TOPIC: DESCRIBE}, "topics of a transaction without DESCRIBE are omitted"
        ),
        allow_list=RequiredAllowList(Operation.DESCRIBE, "shows that a topic exists"),
        limit=limits.ADMINISTRATION,
        forwarding=_DESCRIBED_TRANSACTIONS,
        response_length=element_count(lambda response: response.transaction_states, lambda state: state.topics),
    ),
    ServedApi(
        _K.LIST_TRANSACTIONS,
        describing.list_transactions,
        RequiredRights({TRANSACTION: DESCRIBE}, "other transactions are omitted"),
        limit=limits.ONE,
        forwarding=ToAllCoordinators(_TRANSACTION_STATES, lambda state: state.transactional_id),
        response_length=lambda response: len(response.transaction_states or ()),
    ),
)
