"""Batches of transactions: before the first one on a partition, the coordinator is asked whether it was added (TXN-27).
The connection's next request waits for that, so that nothing is overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from brokers.engine.handlers.client import Client
from brokers.engine.handlers.common.background import answer_in_background
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.transactions import NOT_LED, begin_verification
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records import batch as layout

# As in `produce`: index, error, base offset, append time, log start, message.
PartitionAnswer = tuple[int, int, int, int, int, str | None]
Topics = Sequence[tuple[bytes, Sequence[tuple[int, int, int]]]]
Place = tuple[bytes, int]

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


class TransactionVerification:
    """What one request may append: a token for each partition (`partitions.transactions`), or the line of the answer
    that refuses it. For all others `otherwise` is the token.
    """

    __slots__ = ("otherwise", "refusals", "verification_tokens")

    def __init__(self, otherwise: int = OPEN) -> None:
        self.otherwise = otherwise
        self.verification_tokens: dict[Place, int] = {}
        self.refusals: dict[Place, PartitionAnswer] = {}

    def verification_token(self, name: bytes, index: int) -> int:
        return self.verification_tokens.get((name, index), self.otherwise)

    def refuse(self, place: Place, code: int, message: str | None = None) -> None:
        self.refusals[place] = (place[1], code, -1, -1, -1, message)


def nothing_allowed(topics: Topics, code: int) -> TransactionVerification:
    """The whole request is refused: also what would be right alone is not appended."""
    verification = TransactionVerification()
    for name, wanted in topics:
        for index, _, _ in wanted:
            verification.refuse((name, index), code)
    return verification


def verify_transactions(
    session: Session,
    client: Client,
    version: int,
    transactional_id: str,
    topics: Topics,
    buffer: memoryview,
    start: int,
    end: int,
    again: Callable[[memoryview, TransactionVerification], None],
) -> TransactionVerification | None:
    """What the request may do, if that is known at once; otherwise None, and `again` is called when it is, with a copy
    of the frame `buffer[start:end]`.
    """
    engine = session.engine
    if not engine.coordination.transactions.verifies_partitions:
        return TransactionVerification(UNVERIFIED_OK)
    verification = TransactionVerification()
    asked: dict[Place, Partition] = {}
    producers: set[tuple[int, int]] = set()
    now_ms = engine.clock.now_ms()
    for name, wanted in topics:
        route = client.produce_routes.get(name) or client.produce_route(name)
        for index, records_start, records_end in wanted:
            claim = _claim(buffer, records_start, records_end)
            if claim is None or route.error:
                continue
            producer_id, epoch, sequence = claim
            producers.add((producer_id, epoch))
            partition = route.partitions.get(index) or route.find(index, engine)
            if isinstance(partition, int):
                continue
            verification_token = begin_verification(partition, producer_id, epoch, sequence, now_ms)
            if verification_token not in (OPEN, NOT_LED):
                verification.verification_tokens[name, index] = verification_token
                asked[name, index] = partition
    if len(producers) > 1:
        return nothing_allowed(topics, int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if not asked:
        return verification
    internal_id = session.view().namespace.internal_id(transactional_id)
    frame = memoryview(bytearray(buffer[start:end]))
    answer_in_background(
        session, _ask(session, version, internal_id, *producers.pop(), asked, verification, partial(again, frame))
    )
    return None


def _claim(buffer: memoryview, start: int, end: int) -> tuple[int, int, int] | None:
    """(producer id, epoch, base sequence) of a batch that claims to be of a transaction. What is no batch is refused by
    the append.
    """
    if start < 0 or end - start < layout.HEADER_BYTES or buffer[start + layout.MAGIC_AT] != layout.MAGIC:
        return None
    header = layout.read_header(buffer, start)
    if not header.is_transactional or header.producer_id < 0:
        return None
    return header.producer_id, header.producer_epoch, header.base_sequence


async def _ask(
    session: Session,
    version: int,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    asked: dict[Place, Partition],
    verification: TransactionVerification,
    again: Callable[[TransactionVerification], None],
) -> None:
    places = {place: (partition.topic, partition.index) for place, partition in asked.items()}
    verify = session.engine.verify_transaction
    codes = await verify(transactional_id, producer_id, epoch, list(dict.fromkeys(places.values())))
    for place, key in places.items():
        code = codes.get(key, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if code:
            verification.refuse(place, *refusal(code, version))
    session.cancel = None
    again(verification)


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
