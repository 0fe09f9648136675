"""Queries of coordinators and partition leaders about transactions, and requests that abort them.

`KafkaTransactionAdminClient` implements `instances.groups.interfaces.transaction_admin_client` as the instance's owner.
Requests of operators are sent as the cluster's own user, with internal names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer.transaction import InitProducerIdRequest, WriteTxnMarkersRequest

from brokers.contract.process import CLUSTER_USER
from brokers.dataplane import coordinators
from brokers.dataplane.admin_client import cluster_of, require_ok
from brokers.dataplane.coordinators import CONCURRENT_TRANSACTIONS, ERROR_TEXTS, RETRIABLE_ERRORS, TRANSACTION
from brokers.dataplane.offsets import by_topic
from brokers.dataplane.scatter import Target, first_response, pair_with_targets, scatter, targets
from brokers.dataplane.topics import metadata_request
from brokers.models import Cluster
from instances.groups.interfaces import (
    Partition,
    ProducerState,
    TransactionDescription,
    TransactionList,
    TransactionListing,
)
from instances.interfaces import BrokerUnresponsive
from tenants.errors import OutcomeUnknown, Unavailable

LIST_TRANSACTIONS_VERSION = 0
# First version that filters by the age of a transaction, from Apache Kafka 3.8 on.
LIST_OLD_TRANSACTIONS_VERSION = 1
DESCRIBE_TRANSACTIONS_VERSION = 0
DESCRIBE_PRODUCERS_VERSION = 0
WRITE_TXN_MARKERS_VERSION = 1
INIT_PRODUCER_ID_VERSION = 4
NONE_OPEN = -1
# Timeout of the fencing InitProducerId; no producer continues with it.
FENCE_TIMEOUT_MS = 1_000
ABORT = False
NO_SUCH_ID = 105


class KafkaTransactionAdminClient:
    """Implements `instances.groups.interfaces.TransactionAdminClient`."""

    def transactions(self, instance_id: str) -> TransactionList:
        return list_transactions(targets(cluster_of(instance_id), instance_id))

    def describe(self, instance_id: str, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        cluster = cluster_of(instance_id)
        placements = coordinators.find_coordinators_of_instance(cluster, instance_id, TRANSACTION, ids)
        return describe_transactions(targets(cluster, instance_id), placements)

    def producers(
        self, instance_id: str, partitions: Iterable[Partition]
    ) -> Mapping[Partition, Sequence[ProducerState]]:
        return producers(targets(cluster_of(instance_id), instance_id), partitions)

    def abort(self, instance_id: str, transactional_id: str) -> None:
        response = coordinators.send_to_coordinator(
            instance_id,
            TRANSACTION,
            transactional_id,
            lambda: _fencing_request(transactional_id),
            lambda reply: int(reply.error_code),
            retriable=RETRIABLE_ERRORS | {CONCURRENT_TRANSACTIONS},
        )
        require_ok(response.error_code)


class ClusterTransactions:
    """All transactions of a cluster, with internal names. Raises `Unavailable` if no broker answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._targets = targets(cluster, CLUSTER_USER)

    def transactions(self, *, producer_ids: Sequence[int] = (), open_for_ms: int = -1) -> TransactionList:
        """Returns transactions of some producers, or all; open for at least `open_for_ms` if given."""
        return list_transactions(self._targets, producer_ids=producer_ids, open_for_ms=open_for_ms)

    def describe(self, ids: Sequence[str]) -> Mapping[str, TransactionDescription | None]:
        return describe_transactions(self._targets, coordinators.find_coordinators(self._cluster, TRANSACTION, ids))

    def producers(self, partitions: Iterable[Partition]) -> Mapping[Partition, Sequence[ProducerState]]:
        return producers(self._targets, partitions)

    def abort(self, producer: ProducerState) -> None:
        """Writes an ABORT marker into one partition, like Kafka's tool (TXN-14).

        Raises refusals of the leader, and `OutcomeUnknown` if it does not answer and may have the marker.
        """
        marker_class = WriteTxnMarkersRequest.WritableTxnMarker
        marker = marker_class(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=ABORT,
            topics=[marker_class.WritableTxnMarkerTopic(name=producer.topic, partition_indexes=[producer.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker], version=WRITE_TXN_MARKERS_VERSION)
        leader = _leaders(self._targets, [(producer.topic, producer.partition)])
        result = scatter(pair_with_targets(self._targets, dict.fromkeys(leader, request)), is_write=True)
        if not result.responses:
            if result.may_be_executed:
                raise OutcomeUnknown
            raise Unavailable("The partition's leader does not answer at the moment.", retry_after_s=1)
        (topic,) = result.responses[0][1].markers[0].topics
        require_ok(topic.partitions[0].error_code)

    def fence(self, transactional_id: str) -> None:
        """Sends InitProducerId in a producer's name: its epoch increases, its open transaction is aborted."""

        response = coordinators.send_until_complete(
            self._cluster,
            self._targets,
            TRANSACTION,
            transactional_id,
            lambda: _fencing_request(transactional_id),
            lambda reply: int(reply.error_code),
            retriable=RETRIABLE_ERRORS | {CONCURRENT_TRANSACTIONS},
        )
        require_ok(response.error_code)


def _fencing_request(transactional_id: str) -> Any:
    """Returns the InitProducerId request that fences the previous producer of this id."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=FENCE_TIMEOUT_MS,
        version=INIT_PRODUCER_ID_VERSION,
    )


def list_transactions(
    brokers: Mapping[int, Target], *, producer_ids: Sequence[int] = (), open_for_ms: int = -1
) -> TransactionList:
    """Returns the transactions of all coordinators, sorted by id, and the brokers that did not list theirs."""
    result = scatter([
        (target, ListTransactionsRequest(
            state_filters=[], producer_id_filters=list(producer_ids), duration_filter=open_for_ms,
            version=LIST_TRANSACTIONS_VERSION if open_for_ms < 0 else LIST_OLD_TRANSACTIONS_VERSION,
        )) for target in brokers.values()
    ])  # fmt: skip
    silent = {state.broker_id: state for state in result.silent}
    listings: dict[str, TransactionListing] = {}
    for number, response in result.responses:
        if response.error_code:
            reason = ERROR_TEXTS.get(response.error_code, f"refuses with error {response.error_code}")
            silent[number] = BrokerUnresponsive(broker_id=number, reason=reason)
        for state in response.transaction_states:
            listings[state.transactional_id] = TransactionListing(
                id=state.transactional_id,
                producer_id=state.producer_id,
                state=state.transaction_state,
                coordinator=number,
            )
    return TransactionList(
        transactions=tuple(listings[name] for name in sorted(listings)),
        silent=tuple(silent[number] for number in sorted(silent)),
    )


def describe_transactions(
    brokers: Mapping[int, Target], placements: Mapping[str, int]
) -> dict[str, TransactionDescription | None]:
    """Returns the responses of the coordinators to DescribeTransactions; None where a coordinator does not
    know the id.
    """
    requests = {
        number: DescribeTransactionsRequest(transactional_ids=ids, version=DESCRIBE_TRANSACTIONS_VERSION)
        for number, ids in coordinators.ids_by_broker(placements).items()
    }
    return {
        state.transactional_id: None if state.error_code else _description(state, number)
        for number, response in scatter(pair_with_targets(brokers, requests)).responses
        for state in response.transaction_states
        if state.error_code in (0, NO_SUCH_ID)
    }


def producers(brokers: Mapping[int, Target], partitions: Iterable[Partition]) -> dict[Partition, list[ProducerState]]:
    """Returns the responses of the partitions' leaders to DescribeProducers."""
    topic_class = DescribeProducersRequest.TopicRequest
    requests = {
        leader: DescribeProducersRequest(
            topics=[
                topic_class(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(leader_partitions).items()
            ],
            version=DESCRIBE_PRODUCERS_VERSION,
        )
        for leader, leader_partitions in _leaders(brokers, partitions).items()
    }
    return {
        (topic.name, partition.partition_index): [
            _producer(topic.name, partition.partition_index, state) for state in partition.active_producers
        ]
        for _, response in scatter(pair_with_targets(brokers, requests)).responses
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code
    }


def _leaders(brokers: Mapping[int, Target], partitions: Iterable[Partition]) -> dict[int, list[Partition]]:
    """Returns the partitions by the broker number of their leader."""
    wanted_partitions = set(partitions)
    if not wanted_partitions:
        return {}
    names = sorted({topic for topic, _ in wanted_partitions})
    result: dict[int, list[Partition]] = defaultdict(list)
    for topic in first_response(brokers.values(), lambda: metadata_request(names)).topics:
        for partition in topic.partitions if not topic.error_code else ():
            if (topic.name, partition.partition_index) in wanted_partitions:
                result[partition.leader_id].append((topic.name, partition.partition_index))
    return dict(result)


def _description(state: Any, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        coordinator=coordinator,
        partitions=tuple(sorted((topic.topic, index) for topic in state.topics for index in topic.partitions)),
    )


def _producer(topic: str, partition: int, entry: Any) -> ProducerState:
    return ProducerState(
        topic=topic,
        partition=partition,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp_ms=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_start_offset=None
        if entry.current_txn_start_offset == NONE_OPEN
        else entry.current_txn_start_offset,
    )
