"""Transaction coordination on this broker: its shards, sending of markers to leaders, and verification of partitions
for leaders (TXN-12, TXN-27).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from inspect import isawaitable
from typing import Any, Final

from brokers.contract.partitions import NO_LEADER, PartitionKey
from brokers.engine.assembly.coordination_counts import CountedTransactions, Counts
from brokers.engine.assembly.peer_connections import peers_for
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.coordinators.interfaces import StateLog
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.limits import INTERNAL_ID_BYTES_MAX
from brokers.engine.coordinators.result import StateRecord, Ticket
from brokers.engine.coordinators.runtime import Loop, Runtime
from brokers.engine.coordinators.transactions.machine import TransactionMachine
from brokers.engine.coordinators.transactions.registry import TransactionRegistry
from brokers.engine.coordinators.transactions.replies import (
    NO_COORDINATOR,
    SendMarkers,
    VerificationReply,
    coordinator_error,
)
from brokers.engine.handlers.groups.coordinator_calls import call_coordinator
from brokers.engine.handlers.groups.find_coordinator import TRANSACTION, coordinator_of
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.handlers.transactions import write_markers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.marker_link import MarkerLink
from brokers.engine.replication.peers import PeerUnavailable

TRIM_INTERVAL_S: Final = 1.0
# Timeout of a verification, during which a producer's batch waits.
VERIFY_TIMEOUT_MS: Final = 5_000
VERIFY_VERSION: Final = 5
_DEPOSED: Final = int(ErrorCode.NOT_COORDINATOR)


class Transactions:
    """Transaction coordinator of one broker. Create it before shards are loaded, which send markers."""

    def __init__(
        self,
        services: BrokerServices,
        loop: Loop,
        connect: Connect,
        counts: Counts,
        on_append: Callable[[Sequence[StateRecord], int], None],
    ) -> None:
        self._services = services
        self._counts = counts
        settings = services.coordination.settings
        self._led: LedShards[TransactionRegistry] = LedShards(
            lambda: self.runtime.partitions, services.accounting.loop_weights.tenant_instances
        )
        self.runtime: Runtime[TransactionMachine] = Runtime(
            topic=settings.transactions_topic.name,
            new_machine=self._new_machine,
            loop=loop,
            commit_timeout_ms=settings.commit_timeout_ms,
            perform_effect=self._perform_effect,
            on_append=on_append,
        )
        # A leader responds to a marker when it is replicated; no produce waits behind it.
        self._marker_peers = peers_for("markers", services, connect)
        self._late_marker_peers = peers_for("late-markers", services, connect)
        self._coordinator_peers = peers_for("verification", services, connect)
        self._all_peers = (self._marker_peers, self._late_marker_peers, self._coordinator_peers)
        self.link = MarkerLink(
            broker_id=services.broker_id,
            image=lambda: services.metadata.current.image,
            brokers=self._marker_peers,
            slow_brokers=self._late_marker_peers,
            write_locally=lambda request: write_markers.write_markers(services, request),
            report=self._report,
            spawn=services.spawn,
            call_later=loop.call_later,
        )
        services.coordination.transactions = self.runtime
        services.coordination.verify_transaction = self.verify
        services.metadata.current.subscribe(self.on_image)

    def _new_machine(self, log: StateLog) -> TransactionMachine:
        services = self._services
        return CountedTransactions(
            self._counts,
            log.leader_epoch,
            services.coordination.settings.transactions,
            lambda: log.high_watermark,
            lambda instance_id: not services.metadata.current.image.is_instance_deleted(instance_id),
            self._led,
        )

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        for peers in self._all_peers:
            peers.on_brokers(after.brokers)

    def trim(self) -> None:
        """Closes idle connections; called every TRIM_INTERVAL_S."""
        for peers in self._all_peers:
            peers.trim()

    def close(self) -> None:
        for peers in self._all_peers:
            peers.close()

    # -- markers -------------------------------------------------------------------------------------------------------

    def _perform_effect(self, index: int, effect: object) -> None:
        assert isinstance(effect, SendMarkers)
        self.link.send(index, effect)

    def _report(self, index: int, sent: SendMarkers, partitions: Collection[PartitionKey]) -> bool | None:
        """Reports written markers to the transaction's shard. Returns True if the transaction still waits for markers.

        Returns None while the shard refuses calls. The report must then be repeated: the shard may serve calls again
        without a load, and only a load sends markers a second time.
        """
        if self.runtime.is_unavailable(index):
            return None
        ticket = Ticket(lambda code: False, lambda reply: None)
        reply = self.runtime.perform_at(
            index, lambda machine, now, _: machine.record_written_markers(sent, partitions, now), ticket
        )
        return reply is not False

    # -- verification --------------------------------------------------------------------------------------------------

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[PartitionKey]
    ) -> dict[PartitionKey, int]:
        """Asks the coordinator of `transactional_id`, here or on another broker, if the transaction has `partitions`.

        Returns an error code for each partition, 0 if the transaction has it; implements
        `handlers.services.VerifyTransaction`.
        """
        verified = await self._verify(transactional_id, producer_id, producer_epoch, partitions)
        # A marker names the coordinator that wrote it. If that was a later coordinator than the one that verified, the
        # transaction is over, and records appended now would never get an end marker (decision 76).
        return {
            key: _DEPOSED if code == ErrorCode.NONE and self._has_later_marker(key, producer_id, verified) else code
            for key, code in verified.codes.items()
        }

    def _has_later_marker(self, key: PartitionKey, producer_id: int, verified: VerificationReply) -> bool:
        """True if the partition has a marker of this producer from a later coordinator than the one that verified."""
        partition = self._services.storage.table.get(*key)
        if partition is None or verified.coordinator_epoch == NO_COORDINATOR:
            return False
        return partition.log.producers.coordinator_epoch_of(producer_id) > verified.coordinator_epoch

    async def _verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[PartitionKey]
    ) -> VerificationReply:
        if len(transactional_id.encode()) > INTERNAL_ID_BYTES_MAX:
            # No producer has such an id. It might not fit into a request, and the coordinator would then close the
            # connection, which verifies the transactions of all instances.
            return VerificationReply(dict.fromkeys(partitions, int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)))
        leader = coordinator_of(self._services, TRANSACTION, transactional_id)
        if leader == NO_LEADER:
            return VerificationReply(dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        if leader == self._services.broker_id:
            return await self._verify_here(transactional_id, producer_id, producer_epoch, partitions)
        request = _request(transactional_id, producer_id, producer_epoch, partitions)
        try:
            response = await self._coordinator_peers.request(
                leader, ApiKey.ADD_PARTITIONS_TO_TXN, VERIFY_VERSION, request, VERIFY_TIMEOUT_MS
            )
        except PeerUnavailable:
            return VerificationReply(dict.fromkeys(partitions, int(ErrorCode.NETWORK_EXCEPTION)))
        return _read(response, partitions)

    async def _verify_here(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[PartitionKey]
    ) -> VerificationReply:
        def operation(machine: Any, _now: object, _ticket: object) -> Any:
            return machine.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)

        def error_reply(code: int) -> VerificationReply:
            return VerificationReply(dict.fromkeys(partitions, coordinator_error(code)))

        reply = call_coordinator(self._services, self.runtime, transactional_id, operation, error_reply)
        verified: VerificationReply = await reply if isawaitable(reply) else reply
        return verified


def _request(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[PartitionKey]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        wants_coordinator_epoch=True,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _read(response: AddPartitionsToTxnResponse, partitions: Sequence[PartitionKey]) -> VerificationReply:
    """Returns the verification codes; a partition without a result is not verified."""
    codes = dict.fromkeys(partitions, response.error_code or int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    coordinator_epoch = NO_COORDINATOR
    for transaction in response.results_by_transaction:
        coordinator_epoch = transaction.coordinator_epoch
        for topic in transaction.topic_results:
            for line in topic.results_by_partition:
                codes[topic.name, line.partition_index] = line.partition_error_code
    return VerificationReply(codes, coordinator_epoch)
