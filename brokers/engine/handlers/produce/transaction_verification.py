"""Batches of transactions: before the first one on a partition, the coordinator is asked whether it was added (TXN-27).
The connection's next request waits for that, so that nothing is overtaken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.common.background import answer_in_background, answer_in_turns, parts_of
from brokers.engine.handlers.produce.request import Place, ProduceRequest, ProduceTopics, TransactionVerification
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.transactions import NOT_LED, begin_verification
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records import batch as layout
from brokers.engine.records.validation import claims_transaction
from brokers.engine.scheduling.time_slice import yield_to_others

OnVerified = Callable[[TransactionVerification | None], object]

# From this version on clients know TRANSACTION_ABORTABLE.
ABORTABLE_FROM: Final = 11
NOT_ADDED: Final = "Partition was not added to the transaction"
NOT_KNOWN: Final = "Unable to verify the partition has been added to the transaction. Underlying error: "
# Nobody could say; what producers of all versions take for a reason to try again without looking for another leader.
_PASSING: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def verify_transactions(request: ProduceRequest, on_verified: OnVerified) -> None:
    """`on_verified` with what the request may do, None where nothing of it is of a transaction: at once if that is
    known, or the request is kept until it is.
    """
    claims = _Claims(request)
    claims.add(request.topics)
    claims.verify(on_verified)


def verify_in_turns(request: ProduceRequest, on_verified: OnVerified) -> None:
    """The same, of a request whose batches take long to go through."""
    session = request.session

    async def work() -> None:
        claims = _Claims(request)
        for topics, _ in parts_of(request.topics):
            claims.add(topics)
            await yield_to_others()
        session.cancel = None
        claims.verify(on_verified)

    answer_in_turns(session, int(ApiKey.PRODUCE), request.raw.client_id, work())


class _Claims:
    """What the batches of a request say of transactions, gathered from some of its topics at a time."""

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request
        self._producers: set[tuple[int, int]] = set()
        self._asked: dict[Place, Partition] = {}
        self._verification = TransactionVerification()
        # The error code that refuses all of the request.
        self._refused_with = 0
        settings = request.session.engine.coordination.transactions
        self._is_verified = request.transactional_id is not None and settings.verifies_partitions
        if request.transactional_id is not None and request.attributes & layout.TRANSACTIONAL:
            rights = request.client().rights
            if not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
                self._refused_with = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def add(self, topics: ProduceTopics) -> None:
        if self._refused_with:
            return
        if self._request.transactional_id is None:
            self._require_id(topics)
        elif self._is_verified:
            self._gather(topics)

    def _require_id(self, topics: ProduceTopics) -> None:
        """A batch of a transaction that nobody names refuses the whole request: REC-44 is for all of them, and comes
        before whatever else is wrong.
        """
        buffer = self._request.raw.buffer
        if any(
            start >= 0 and claims_transaction(buffer[start:end]) for _, wanted in topics for _, start, end in wanted
        ):
            self._refused_with = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def _gather(self, topics: ProduceTopics) -> None:
        request, client = self._request, self._request.client()
        engine, buffer = request.session.engine, request.raw.buffer
        now_ms = engine.clock.now_ms()
        for name, wanted in topics:
            route = client.produce_routes.get(name) or client.produce_route(name)
            for index, records_start, records_end in wanted:
                claim = _claim(buffer, records_start, records_end)
                if claim is None or route.error:
                    continue
                self._producers.add((claim.producer_id, claim.producer_epoch))
                if len(self._producers) > 1:
                    self._refused_with = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                    return
                partition = route.partitions.get(index) or route.find(index, engine)
                if isinstance(partition, int):
                    continue
                token = begin_verification(
                    partition, claim.producer_id, claim.producer_epoch, claim.base_sequence, now_ms
                )
                if token not in (OPEN, NOT_LED):
                    self._verification.verification_tokens[name, index] = token
                    self._asked[name, index] = partition

    def verify(self, on_verified: OnVerified) -> None:
        request = self._request
        if self._refused_with:
            on_verified(TransactionVerification(refused_with=self._refused_with))
        elif request.transactional_id is None:
            on_verified(None)
        elif not self._is_verified:
            on_verified(TransactionVerification(UNVERIFIED_OK))
        elif not self._asked:
            on_verified(self._verification)
        else:
            internal_id = request.session.view().namespace.internal_id(request.transactional_id)
            request.keep()
            asking = _ask(request, internal_id, *self._producers.pop(), self._asked, self._verification, on_verified)
            answer_in_background(request.session, asking)


class _Claim(NamedTuple):
    """What a batch says of the producer whose transaction it is of."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


def _claim(buffer: memoryview, start: int, end: int) -> _Claim | None:
    """Of a batch that claims to be of a transaction. What is no batch is refused by the append."""
    if start < 0 or end - start < layout.HEADER_BYTES or buffer[start + layout.MAGIC_AT] != layout.MAGIC:
        return None
    header = layout.read_header(buffer, start)
    if not header.is_transactional or header.producer_id < 0:
        return None
    return _Claim(header.producer_id, header.producer_epoch, header.base_sequence)


async def _ask(
    request: ProduceRequest,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    asked: dict[Place, Partition],
    verification: TransactionVerification,
    on_verified: OnVerified,
) -> None:
    session = request.session
    places = {place: (partition.topic, partition.index) for place, partition in asked.items()}
    verify = session.engine.verify_transaction
    codes = await verify(transactional_id, producer_id, producer_epoch, list(dict.fromkeys(places.values())))
    for place, key in places.items():
        code = codes.get(key, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if code:
            verification.refuse(place, *refusal(code, request.raw.version))
    session.cancel = None
    on_verified(verification)


def refusal(code: int, version: int) -> tuple[int, str | None]:
    """What a producer of this version is told of the coordinator's `code`: an error, and a message that explains it."""
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        code = int(ErrorCode.INVALID_TXN_STATE)
    if code == ErrorCode.INVALID_TXN_STATE:
        return code, NOT_ADDED
    if code == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH), None
    if code in _PASSING:
        return int(ErrorCode.NOT_ENOUGH_REPLICAS), NOT_KNOWN + ErrorCode(code).name
    return code, None
