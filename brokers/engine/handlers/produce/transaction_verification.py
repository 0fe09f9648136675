"""Transaction verification: before the first batch of a transaction on a partition, the coordinator is asked whether
the partition was added to the transaction (TXN-27). The connection's next request waits meanwhile, which keeps the
order.
"""

from __future__ import annotations

from typing import Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.produce.request import (
    NamedPartition,
    ProduceRequest,
    ProduceTopics,
    TransactionVerification,
)
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.transactions import NOT_LED, begin_verification
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records import batch as layout
from brokers.engine.records.validation import claims_transaction

# First version whose clients know TRANSACTION_ABORTABLE.
ABORTABLE_FROM: Final = 11
NOT_ADDED: Final = "Partition was not added to the transaction"
NOT_VERIFIED: Final = "Unable to verify the partition has been added to the transaction. Underlying error: "
# Transient errors, answered with a code after which producers of all versions retry without looking for another leader.
_TRANSIENT_ERRORS: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def gather_claims(request: ProduceRequest) -> TransactionClaims:
    """Gathers the claims of all batches of a request, and sets its verification as far as no coordinator is needed."""
    claims = TransactionClaims(request)
    claims.add(request.topics)
    claims.finish()
    return claims


class TransactionClaims:
    """Transactions that the batches of a request claim to be part of. They are gathered from a few topics at a time.

    `unverified` has the partitions that the coordinator has still to be asked about.
    """

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request
        self._producers: set[tuple[int, int]] = set()
        self.unverified: dict[NamedPartition, Partition] = {}
        self._verification = TransactionVerification()
        # Error code that rejects the whole request.
        self._request_error_code = 0
        settings = request.session.services.coordination.settings.transactions
        self._requires_verification = request.transactional_id is not None and settings.verifies_partitions
        if request.transactional_id is not None and request.attributes & layout.TRANSACTIONAL:
            rights = request.client().rights
            if not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
                self._request_error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def add(self, topics: ProduceTopics) -> None:
        if self._request_error_code:
            return
        if self._request.transactional_id is None:
            self._require_transactional_id(topics)
        elif self._requires_verification:
            self._gather(topics)

    def _require_transactional_id(self, topics: ProduceTopics) -> None:
        """Rejects the whole request if it has a transactional batch but no transactional id: REC-44 applies to all
        batches, and takes precedence over other errors.
        """
        buffer = self._request.raw.buffer
        if any(
            start >= 0 and claims_transaction(buffer[start:end])
            for _, partition_sets in topics
            for _, start, end in partition_sets
        ):
            self._request_error_code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def _gather(self, topics: ProduceTopics) -> None:
        request, client = self._request, self._request.client()
        services, buffer = request.session.services, request.raw.buffer
        now_ms = services.clock.now_ms()
        for name, partitions in topics:
            topic = client.produce_topics.get(name) or client.resolve_produce_topic(name)
            for index, records_start, records_end in partitions:
                claim = _read_claim(buffer, records_start, records_end)
                if claim is None or topic.error:
                    continue
                self._producers.add((claim.producer_id, claim.producer_epoch))
                if len(self._producers) > 1:
                    self._request_error_code = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                    return
                partition = topic.partitions.get(index) or topic.find(index, request.session.storage)
                if isinstance(partition, int):
                    continue
                token = begin_verification(
                    partition, claim.producer_id, claim.producer_epoch, claim.base_sequence, now_ms
                )
                if token not in (OPEN, NOT_LED):
                    self._verification.verification_tokens[name, index] = token
                    self.unverified[name, index] = partition

    def finish(self) -> None:
        """Sets the verification of the request, once all of its topics were added."""
        request = self._request
        if self._request_error_code:
            self.unverified.clear()
            request.verification = TransactionVerification(request_error_code=self._request_error_code)
        elif request.transactional_id is not None:
            request.verification = (
                self._verification if self._requires_verification else TransactionVerification(UNVERIFIED_OK)
            )

    async def verify(self) -> None:
        """Asks the coordinator about each unverified partition; partitions that it rejects are not appended to."""
        request, session = self._request, self._request.session
        assert request.transactional_id is not None, "nothing is gathered without a transactional id"
        internal_id = session.view().namespace.internal_id(request.transactional_id)
        internal_keys = {
            named_partition: (partition.topic, partition.index)
            for named_partition, partition in self.unverified.items()
        }
        partitions = list(dict.fromkeys(internal_keys.values()))
        codes = await session.services.coordination.verify_transaction(internal_id, *self._producers.pop(), partitions)
        for named_partition, internal_key in internal_keys.items():
            code = codes.get(internal_key, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            if code:
                self._verification.refuse(named_partition, *refusal(code, request.raw.version))


def _read_claim(buffer: memoryview, start: int, end: int) -> layout.BatchHeader | None:
    """Returns the header of a batch that claims to be part of a transaction, else None. Bytes that are no batch are
    rejected by the append.
    """
    if start < 0 or end - start < layout.HEADER_BYTES or buffer[start + layout.MAGIC_AT] != layout.MAGIC:
        return None
    header = layout.read_header(buffer, start)
    return header if header.is_transactional and header.producer_id >= 0 else None


def refusal(code: int, version: int) -> tuple[int, str | None]:
    """Returns the error code, and its message, by which producers of this version understand a coordinator's `code`."""
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        code = int(ErrorCode.INVALID_TXN_STATE)
    if code == ErrorCode.INVALID_TXN_STATE:
        return code, NOT_ADDED
    if code == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH), None
    if code in _TRANSIENT_ERRORS:
        return int(ErrorCode.NOT_ENOUGH_REPLICAS), NOT_VERIFIED + ErrorCode(code).name
    return code, None
