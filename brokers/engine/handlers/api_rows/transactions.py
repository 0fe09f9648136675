"""Calls about transactions and their producers. Rows of the API table."""

from __future__ import annotations

from typing import Any, Final

from brokers.contract.acls import AclOperation
from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.api_rows.shared import (
    CLUSTER,
    CLUSTERS_OWN,
    CLUSTERS_OWN_LIST,
    COMMITS,
    DESCRIBE,
    GROUP,
    POSITIONS_LIST,
    READ,
    TOPIC,
    TRANSACTION,
    WRITE,
)
from brokers.engine.handlers.common import fresh_topics
from brokers.engine.handlers.common.turns import result_lines
from brokers.engine.handlers.groups import coordinator_forwarding as forwarding
from brokers.engine.handlers.groups import find_coordinator
from brokers.engine.handlers.groups.coordinator_forwarding import (
    ToAllCoordinators,
    ToCoordinator,
    ToEachCoordinator,
)
from brokers.engine.handlers.offsets import transactional
from brokers.engine.handlers.required_rights import RequiredRights
from brokers.engine.handlers.served_api import ListAsked, ListField, ServedApi
from brokers.engine.handlers.transactions import (
    add_partitions,
    describe_producers,
    listing,
    producer_ids,
    transactions,
    write_markers,
)
from brokers.engine.protocol import request_limits as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey


def _set_transactional_ids(message: Any, items: list[Any]) -> None:
    message.transactional_ids = items


def _set_transaction_states(message: Any, items: list[Any]) -> None:
    message.transaction_states = items


_TRANSACTIONAL_IDS: Final = ListField(lambda message: message.transactional_ids, _set_transactional_ids)
_TRANSACTION_STATES: Final = ListField(lambda message: message.transaction_states, _set_transaction_states)
_TO_TRANSACTION: Final = ToCoordinator(find_coordinator.TRANSACTION, forwarding.transactional_id)
_DESCRIBED_TRANSACTIONS: Final = ToEachCoordinator(
    find_coordinator.TRANSACTION,
    _TRANSACTIONAL_IDS,
    str,
    _TRANSACTION_STATES,
    lambda state: state.transactional_id,
)

ROWS: Final = (
    ServedApi(
        _K.INIT_PRODUCER_ID,
        producer_ids.init_producer_id,
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
        topic_list=ListAsked(Operation.PRODUCE, "announces records"),
        throttled_first=True,
        forwarding=ToCoordinator(find_coordinator.TRANSACTION, forwarding.single_transactional_id),
        topics_named=fresh_topics.topics_of_transaction,
        result_lines=add_partitions.lines_answered,
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
        topic_list=POSITIONS_LIST,
        throttled_first=True,
        forwarding=ToCoordinator(find_coordinator.GROUP, forwarding.group_id),
        split=COMMITS,
        topics_named=fresh_topics.topics_with_partitions,
        result_lines=result_lines(COMMITS),
    ),
    ServedApi(
        _K.END_TXN,
        transactions.end_txn,
        RequiredRights({TRANSACTION: WRITE}, "ends a transaction"),
        topic_list=ListAsked(
            None, "names no topic: the records were admitted when written, and readers wait for the end"
        ),
        limit=limits.ONE,
        throttled_first=True,
        forwarding=_TO_TRANSACTION,
    ),
    ServedApi(
        _K.WRITE_TXN_MARKERS,
        write_markers.write_txn_markers,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
    ),
    ServedApi(
        _K.DESCRIBE_PRODUCERS,
        describe_producers.describe_producers,
        RequiredRights({TOPIC: READ}, "shows the producers, and how much they write"),
        topic_list=ListAsked(Operation.CONSUME, "shows the producers, and how much they write"),
        topics_named=fresh_topics.topics,
        result_lines=describe_producers.settings_described,
    ),
    ServedApi(
        _K.DESCRIBE_TRANSACTIONS,
        listing.describe_transactions,
        RequiredRights(
            {TRANSACTION: DESCRIBE, TOPIC: DESCRIBE},
            "topics of a transaction without DESCRIBE are omitted",
        ),
        topic_list=ListAsked(Operation.DESCRIBE, "shows that a topic exists"),
        limit=limits.ADMINISTRATION,
        forwarding=_DESCRIBED_TRANSACTIONS,
        result_lines=listing.transactions_described,
    ),
    ServedApi(
        _K.LIST_TRANSACTIONS,
        listing.list_transactions,
        RequiredRights({TRANSACTION: DESCRIBE}, "other transactions are omitted"),
        limit=limits.ONE,
        forwarding=ToAllCoordinators(_TRANSACTION_STATES, lambda state: state.transactional_id),
        result_lines=lambda response: len(response.transaction_states or ()),
    ),
)
