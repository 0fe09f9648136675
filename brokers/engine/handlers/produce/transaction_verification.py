"""Batches of transactions: before the first one on a partition, the coordinator is asked whether it was added (TXN-27).
The connection's next request waits for that, so that nothing is overtaken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.produce.request import Place, ProduceRequest, TransactionVerification
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.transactions import NOT_LED, begin_verification
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_produce import ProduceTopic
from brokers.engine.records import batch as layout
from brokers.engine.records.validation import claims_transaction

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


def refuse_without_transactional_id(request: ProduceRequest) -> TransactionVerification | None:
    """The refusal of a request in which a partition is given a batch of a transaction that nobody names: REC-44 is for
    all of them, and comes before whatever else is wrong.
    """
    topics, buffer = request.topics, request.raw.buffer
    for _, wanted in topics:
        for _, start, end in wanted:
            if start >= 0 and claims_transaction(buffer[start:end]):
                return _refuse_all(topics, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    return None


def _refuse_all(topics: list[ProduceTopic], code: int) -> TransactionVerification:
    """The whole request is refused: also what would be right alone is not appended."""
    verification = TransactionVerification()
    for name, wanted in topics:
        for index, _, _ in wanted:
            verification.refuse((name, index), code)
    return verification


def verify_transactions(
    request: ProduceRequest, transactional_id: str, on_verified: Callable[[TransactionVerification], object]
) -> TransactionVerification | None:
    """What the request may do, if that is known at once; otherwise None: the request is kept, and `on_verified` is
    called when it is.
    """
    session, client = request.session, request.client()
    engine, buffer = session.engine, request.raw.buffer
    if request.attributes & layout.TRANSACTIONAL and not client.rights.allows(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return _refuse_all(request.topics, int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not engine.coordination.transactions.verifies_partitions:
        return TransactionVerification(UNVERIFIED_OK)
    verification = TransactionVerification()
    asked: dict[Place, Partition] = {}
    producers: set[tuple[int, int]] = set()
    now_ms = engine.clock.now_ms()
    for name, wanted in request.topics:
        route = client.produce_routes.get(name) or client.produce_route(name)
        for index, records_start, records_end in wanted:
            claim = _claim(buffer, records_start, records_end)
            if claim is None or route.error:
                continue
            producers.add((claim.producer_id, claim.producer_epoch))
            partition = route.partitions.get(index) or route.find(index, engine)
            if isinstance(partition, int):
                continue
            verification_token = begin_verification(
                partition, claim.producer_id, claim.producer_epoch, claim.base_sequence, now_ms
            )
            if verification_token not in (OPEN, NOT_LED):
                verification.verification_tokens[name, index] = verification_token
                asked[name, index] = partition
    if len(producers) > 1:
        return _refuse_all(request.topics, int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if not asked:
        return verification
    internal_id = session.view().namespace.internal_id(transactional_id)
    request.keep()
    answer_in_background(session, _ask(request, internal_id, *producers.pop(), asked, verification, on_verified))
    return None


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
    on_verified: Callable[[TransactionVerification], object],
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
